// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/result.hpp"
#include "driver/backend.hpp"
#include "wire/messages.hpp"

// What the kernel of this host says about the VMM and its helpers; and, under names that begin with
// "guest.", what the guest says about itself, on which nothing rests.
namespace sandbox::driver::microvm {

// The mechanism of everything that a guest said: a reader of the audit must not take it for seen.
inline constexpr std::string_view kGuestReported = "guest-reported";

[[nodiscard]] Result<std::vector<Evidence>> observe_machine(const plan::ExecutionPlan& plan,
                                                            const Binding& binding,
                                                            const Launched& launched,
                                                            const Groups* groups);

// CONFINED of a session in a guest, in the words of the plan's controls.
std::vector<Evidence> report_of(const plan::ExecutionPlan& plan, const wire::Confined& report);

}  // namespace sandbox::driver::microvm
