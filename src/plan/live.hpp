// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/result.hpp"
#include "plan/plan.hpp"

// What of a plan may change under a sandbox that runs. Pure: no file, no clock, no kernel.
namespace sandbox::plan {

// Of plan::diff: what the profile says differently, and what follows from host, policy or release.
struct Changes {
    std::vector<Change> request;
    std::vector<Change> derived;  // holds from the next start on; never a reason to end a sandbox
};
Changes split_changes(const ExecutionPlan& runs, const ExecutionPlan& wanted);

// Every change of the request is of class `live` (none at all is, too). Derived changes do not
// count: an upgrade of the host ends no sandbox.
bool all_live(const Changes& changes) noexcept;

// The plan that `runs` becomes when the live keys of `wanted` are applied: its request, limits,
// lifecycle and policy; everything else (artifacts, boundary, files) as it runs. Equal to `wanted`
// when nothing but live keys differ. conflict: a key that is not live differs, or a limit needs a
// cgroup v1 hierarchy that the sandbox did not join at its start.
[[nodiscard]] Result<ExecutionPlan> live_revision(const ExecutionPlan& runs,
                                                  const ExecutionPlan& wanted);

}  // namespace sandbox::plan
