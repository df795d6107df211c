// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "base/result.hpp"
#include "driver/driver.hpp"
#include "supervisor/service.hpp"
#include "supervisor/shim_client.hpp"
#include "wire/wire.hpp"

// Sessions inside a running sandbox, as a client has them. Nothing here touches standard streams,
// terminal modes or signals of this process: everything comes in with a Console. Requires: SIGPIPE
// is ignored.
namespace sandbox::supervisor {

// A running sandbox, as far as a session must know it. Values of the moment they were read;
// `unchanged` below asks again.
struct Target {
    ledger::Sandbox sandbox;
    plan::ExecutionPlan plan;
    driver::Binding binding;
};

// What `request` asks of PID 1, under the sandbox's plan. Code::denied for what the plan does not
// permit, invalid_argument for what cannot be said.
[[nodiscard]] Result<wire::Open> describe_session(const Target& target, const ExecRequest& request);

// A foreground session without a terminal: over the door, spliced to the console until it ends.
// Blocks until then; the session dies with this process. `unchanged` is asked before the first
// instruction of it: the sandbox is still the one meant. Code::denied when a control does not hold
// (the command has not run), deadline_exceeded after 10 s without a reply.
[[nodiscard]] Result<SessionResult> exec_through_door(const Target& target,
                                                      const ExecRequest& request,
                                                      const std::function<Status()>& unchanged);

// A terminal or a detached session: opened by the shim, which keeps it when the client goes. Blocks
// while attached. `shim` is used up.
[[nodiscard]] Result<SessionResult> exec_through_shim(const Target& target,
                                                      const ExecRequest& request,
                                                      ShimConnection shim);

}  // namespace sandbox::supervisor
