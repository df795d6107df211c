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

// A running sandbox, as far as a session must know it.
struct Target {
    ledger::Sandbox sandbox;
    plan::ExecutionPlan plan;
    driver::Binding binding;
};

// What `request` asks of PID 1, under the sandbox's plan. Code::denied for what the plan does not
// permit, invalid_argument for what cannot be said.
[[nodiscard]] Result<wire::Open> describe_session(const Target& target, const ExecRequest& request);

// A foreground session without a terminal: over the door, spliced to the console until it ends.
// `unchanged` is asked before the first instruction of it: the sandbox is still the one meant.
[[nodiscard]] Result<SessionResult> exec_through_door(const Target& target,
                                                      const ExecRequest& request,
                                                      const std::function<Status()>& unchanged);

// A terminal or a detached session: opened by the shim, which keeps it.
[[nodiscard]] Result<SessionResult> exec_through_shim(const Target& target,
                                                      const ExecRequest& request,
                                                      ShimConnection shim);

}  // namespace sandbox::supervisor
