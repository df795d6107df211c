// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "driver/driver.hpp"
#include "driver/oci/launch.hpp"
#include "plan/plan.hpp"
#include "sys/cgroup/cgroup.hpp"

// The cgroups of one sandbox, opened. A launch opens them once (make_groups) and hands them along.
namespace sandbox::driver::oci {

// An emptied cgroup is removable as soon as its last zombie is reaped: moments.
inline constexpr std::chrono::milliseconds kRemoveDeadline{5'000};

struct Groups {
    sys::cgroup::Host host;
    std::optional<sys::cgroup::CgroupTree> top;       // <id>
    std::optional<sys::cgroup::CgroupTree> control;
    std::optional<sys::cgroup::CgroupTree> workload;
};

// The hierarchies of this process. Read once for each mount namespace that the process is in:
// nobody mounts hierarchies under a running host, and a sandbox lives in those it was made in.
[[nodiscard]] Result<sys::cgroup::Host> host_cgroups();

// create_cgroups(), keeping what it opened. Stale once the cgroups are removed.
[[nodiscard]] Result<Groups> make_groups(const plan::ExecutionPlan& plan, const Binding& binding);
// As without `groups`, which are the sandbox's.
[[nodiscard]] Result<SessionLeaf> create_session_leaf(const plan::ExecutionPlan& plan,
                                                      const Binding& binding,
                                                      std::string_view session,
                                                      const Groups& groups);

// Makes what is missing.
[[nodiscard]] Result<Groups> open_groups(const plan::ExecutionPlan& plan, const Binding& binding);
// Passes controllers on, writes the limits, reads them back.
[[nodiscard]] Status apply_limits(const plan::ExecutionPlan& plan, const Groups& groups);

std::vector<sys::cgroup::Setting> to_sys(const std::vector<plan::CgroupSetting>& settings);

}  // namespace sandbox::driver::oci
