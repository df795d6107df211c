// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "driver/driver.hpp"
#include "plan/plan.hpp"
#include "sys/cgroup/cgroup.hpp"

// The cgroups of one sandbox, whatever its driver: <id>, <id>/control for PID 1 and helpers,
// <id>/workload/<session> for what the user runs. A launch opens them once (make_groups) and hands
// them along.
namespace sandbox::driver {

// What is enforced on this host: a guest's own limits are its kernel's.
inline const plan::ResourcePlan& host_resources(const plan::ExecutionPlan& plan) noexcept
{
    return plan->microvm ? plan->microvm->host : plan->resources;
}

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

// Directories that `create_cgroups` makes, parents first ("/sys/fs/cgroup/pids/sandbox/ID", …):
// the caller's ledger intents.
[[nodiscard]] Result<std::vector<std::string>> list_cgroups(const plan::ExecutionPlan& plan,
                                                            const Binding& binding);

// Makes <id>, <id>/control and <id>/workload in every hierarchy of the plan, writes each setting
// and reads it back; a value that does not read back as planned is an error.
[[nodiscard]] Status create_cgroups(const plan::ExecutionPlan& plan, const Binding& binding);

// One session's leaf. `joins` goes with PASS to PID 1: v1 `tasks` opened by us, one a hierarchy,
// in the plan's controller order; v2 the leaf's directory.
struct SessionLeaf {
    std::string name;
    std::vector<sys::UniqueFd> joins;
};
[[nodiscard]] Result<SessionLeaf> create_session_leaf(const plan::ExecutionPlan& plan,
                                                      const Binding& binding,
                                                      std::string_view session);
// Kills what is left in the leaf and removes it. Idempotent.
[[nodiscard]] Status remove_session_leaf(const plan::ExecutionPlan& plan, const Binding& binding,
                                         std::string_view session);
// Kernel OOM kills counted in the workload, all sessions whose leaf still exists: ask before
// remove_session_leaf().
[[nodiscard]] Result<std::uint64_t> oom_kills(const plan::ExecutionPlan& plan,
                                              const Binding& binding);

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

// SIGKILLs everything below `cgroup` (Binding::cgroup) in every hierarchy and waits until it is
// empty. Idempotent; works after a crash with nothing but the path. The deadline is for emptiness.
[[nodiscard]] Status kill_all(std::string_view cgroup,
                              std::chrono::milliseconds deadline = std::chrono::seconds(10));

// Removes the cgroups in every hierarchy, children first. Requires: kill_all. Idempotent. A parent
// left empty ("/sandbox") is removed too.
[[nodiscard]] Status remove_cgroups(std::string_view cgroup);

}  // namespace sandbox::driver
