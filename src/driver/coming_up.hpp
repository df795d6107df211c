// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"
#include "driver/driver.hpp"
#include "plan/plan.hpp"
#include "sys/deadline.hpp"
#include "sys/process.hpp"

// What the launches of host processes share: waiting for PID 1 to speak, and the way out of a
// failure.
namespace sandbox::driver {

// Takes the first packet of the SEQPACKET channel, which is there: INIT_UP of our own version, with
// the credentials that say who PID 1 is here.
[[nodiscard]] Result<sys::Pidfd> take_init_up(int channel);

// As take_init_up, waiting; `process` is PID 1 itself, whose end is a failure.
[[nodiscard]] Result<sys::Pidfd> await_init(int channel, const sys::Pidfd& process,
                                            sys::Deadline deadline);

// What was said on a non-blocking pipe, escaped and bounded.
std::string drain_words(int diagnostics);

// Kills and reaps what is in the sandbox's cgroups. Best effort: the first error is what counts.
void end_sandbox(const plan::ExecutionPlan& plan, const Binding& binding);

}  // namespace sandbox::driver
