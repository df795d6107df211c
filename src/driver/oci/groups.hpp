// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "driver/driver.hpp"
#include "plan/plan.hpp"
#include "sys/cgroup/cgroup.hpp"

// The cgroups of one sandbox, opened; used by launch and evidence only.
namespace sandbox::driver::oci {

// An emptied cgroup is removable as soon as its last zombie is reaped: moments.
inline constexpr std::chrono::milliseconds kRemoveDeadline{5'000};

struct Groups {
    sys::cgroup::Host host;
    std::optional<sys::cgroup::CgroupTree> top;       // <id>
    std::optional<sys::cgroup::CgroupTree> control;
    std::optional<sys::cgroup::CgroupTree> workload;
};

// Makes what is missing.
[[nodiscard]] Result<Groups> open_groups(const plan::ExecutionPlan& plan, const Binding& binding);
// Passes controllers on, writes the limits, reads them back.
[[nodiscard]] Status apply_limits(const plan::ExecutionPlan& plan, const Groups& groups);

std::vector<sys::cgroup::Setting> to_sys(const std::vector<plan::CgroupSetting>& settings);

}  // namespace sandbox::driver::oci
