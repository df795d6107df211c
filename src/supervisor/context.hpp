// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.hpp"
#include "driver/resources.hpp"
#include "supervisor/host.hpp"
#include "sys/fd.hpp"

namespace sandbox::supervisor {

// Keeps the folders open that a ResourceContext points into.
struct OpenContext {
    sys::UniqueFd run;
    sys::UniqueFd state;
    driver::ResourceContext context;
};

// Makes RUN and STATE when they are missing (0700).
[[nodiscard]] Result<OpenContext> open_context(const Paths& paths,
                                               const std::string& cgroup_parent);

// One process, alive right now (a zombie is not).
bool is_alive(const sys::ProcessIdentity& identity);

}  // namespace sandbox::supervisor
