// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "plan/plan.hpp"
#include "shim/control_protocol.hpp"
#include "shim/generation.hpp"
#include "shim/journal.hpp"

// Live changes: another plan for a sandbox that runs.
namespace sandbox::shim {

// The writes that lead from the limits in force to those wanted, in an order in which the kernel
// takes each of them. A limit that is no longer wanted gets the value that limits nothing; for
// cpuset.cpus that is `inherited_cpuset`. Pure.
std::vector<plan::CgroupSetting> order_writes(plan::CgroupVersion version,
                                              const std::vector<plan::CgroupSetting>& in_force,
                                              const std::vector<plan::CgroupSetting>& wanted,
                                              const std::string& inherited_cpuset);

// Reads the plan that the supervisor left in the sandbox's state folder, judges again that nothing
// but live keys differ, writes the limits, reads them back, and commits plan, labels and the audit
// event together. On failure everything is as it was before; the error says what the kernel said.
// On success `generation` holds the new plan and its evidence.
[[nodiscard]] Status update(Generation& generation, Journal& journal, const UpdateRequest& request);

// For `inspect`: STATE/sandboxes/ID/evidence.json, whole or not there. Overwrites the last one.
[[nodiscard]] Status save_evidence(const Generation& generation);

}  // namespace sandbox::shim
