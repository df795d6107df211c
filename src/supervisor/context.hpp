// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.hpp"
#include "driver/resources.hpp"
#include "supervisor/host.hpp"
#include "sys/fd.hpp"

namespace sandbox::supervisor {

// Keeps the folders open that a ResourceContext points into: it must outlive every use of
// `context`. Moving it is fine, descriptors keep their numbers.
struct OpenContext {
    sys::UniqueFd run;
    sys::UniqueFd state;
    driver::ResourceContext context;
};

// Makes RUN and STATE when they are missing (0700).
[[nodiscard]] Result<OpenContext> open_context(const Paths& paths,
                                               const std::string& cgroup_parent);

// One process, alive right now (a zombie is not). Judged by its whole identity: a reused pid is
// false. Any doubt is "no".
bool is_alive(const sys::ProcessIdentity& identity);

}  // namespace sandbox::supervisor
