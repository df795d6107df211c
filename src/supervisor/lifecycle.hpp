// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"
#include "ledger/ledger.hpp"
#include "supervisor/host.hpp"
#include "supervisor/launch.hpp"
#include "supervisor/service.hpp"

// A sandbox that is made first and started later, or again.
namespace sandbox::supervisor {

// Row, ids, plan.json and the log folder, under a claim of this process; then it rests in `created`
// with no process and no cgroup. What fails leaves a row in `failed`, for rm. already_exists: the
// name is taken; resource_exhausted: no ids or no room on the disk.
[[nodiscard]] Result<RunResult> create_resting(const Host& host, ledger::Ledger& ledger,
                                               const plan::ExecutionPlan& plan,
                                               const RunRequest& request);

// The plan that the sandbox was made with, if it still holds: plan.json is the recorded one, and
// its request, resolved again under today's policy, artifacts and facts, gives the same bytes. Else
// Code::denied with the reasons.
[[nodiscard]] Result<plan::ExecutionPlan> stored_plan(const Host& host,
                                                      const ledger::Sandbox& sandbox);

}  // namespace sandbox::supervisor
