// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"

// Stops and continues what the user runs in a sandbox: the workload's cgroup and every session
// below it. PID 1 and its channel go on.
namespace sandbox::shim {

// `cgroup` is Binding::cgroup. Returns once the kernel says that the last task stopped; a workload
// that does not stop in time (a task in uninterruptible sleep) is thawed again.
[[nodiscard]] Status freeze_workload(const std::string& cgroup);
// Also what a freeze left half-way. Idempotent.
[[nodiscard]] Status thaw_workload(const std::string& cgroup);

}  // namespace sandbox::shim
