// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong.hpp"
#include "plan/plan.hpp"

namespace sandbox::driver {

// What differs per launch: allocated by the supervisor, ledgered, never in the plan.
struct Binding {
    SandboxId id;
    SandboxName name;
    std::uint32_t generation = 1;
    std::uint32_t id_base = 0;   // first host uid and gid of this sandbox's range
    HostPath run_dir;            // RUN/ID: sockets, bundle mount point
    HostPath state_dir;          // STATE/sandboxes/ID: plan.json, logs/
    std::string cgroup;          // path below the hierarchy roots: "/sandbox/ID"
    std::vector<HostPath> guarded{};  // never granted, as RUN and STATE are not: the secret store
    bool operator==(const Binding&) const = default;
};

// One control, planned and seen. `observed` is what the kernel said, never what we wrote.
struct Evidence {
    std::string name;
    std::string mechanism;
    std::string planned;
    std::string observed;
    bool held = false;
    bool operator==(const Evidence&) const = default;
};

}  // namespace sandbox::driver
