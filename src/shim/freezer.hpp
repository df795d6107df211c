// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"

// Stops and continues what the user runs in a sandbox: the workload's cgroup and every session
// below it. PID 1 and its channel go on.
namespace sandbox::shim {

// `cgroup` is Binding::cgroup, below the hierarchy roots. Returns once the kernel says that the
// last task stopped; a workload that does not stop in 2 s (a task in uninterruptible sleep) is
// thawed again. deadline_exceeded or the kernel's refusal; not_found: nothing of it runs.
[[nodiscard]] Status freeze_workload(const std::string& cgroup);
// Also what a freeze left half-way. Idempotent. The same errors.
[[nodiscard]] Status thaw_workload(const std::string& cgroup);

}  // namespace sandbox::shim
