// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/result.hpp"
#include "driver/backend.hpp"
#include "plan/plan.hpp"
#include "wire/messages.hpp"

// What the kernel says is in force around processes of this host (Whereabouts::host). Reads only;
// writes nothing into the sandbox.
namespace sandbox::driver {

// PID 1 and what surrounds it: namespaces, id maps, outer ring, cgroups with their values,
// mounts, root, descriptors. Call after launch, before any OPEN.
// `groups` are those of make_groups(); null: opened anew. Their values are read either way.
[[nodiscard]] Result<std::vector<Evidence>> observe_sandbox(const plan::ExecutionPlan& plan,
                                                            const Binding& binding,
                                                            const Launched& launched,
                                                            const Groups* groups = nullptr);

// One session's leader between CONFINED and GO: identity, five capability sets, NoNewPrivs,
// filters, leaf membership, namespaces equal to PID 1's, descriptors. `pid` is the leader's pid
// here (SO_PASSCRED of CONFINED's packet or find_session_pid), `init_pid` that of PID 1.
[[nodiscard]] Result<std::vector<Evidence>> observe_session(const plan::ExecutionPlan& plan,
                                                            const Binding& binding, int init_pid,
                                                            int pid, const wire::Confined& report);

// The host pid of the process that calls itself `inner_pid` inside the sandbox; found through the
// session's leaf and NSpid.
[[nodiscard]] Result<int> find_session_pid(const plan::ExecutionPlan& plan, const Binding& binding,
                                           std::string_view session, int inner_pid);

// Every control of the plan has a witness that held, and nothing observed did not hold.
// Call with both lists together; the names that fail are in the error.
[[nodiscard]] Status verify(const plan::ExecutionPlan& plan, const std::vector<Evidence>& evidence);

}  // namespace sandbox::driver
