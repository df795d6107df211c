// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "driver/driver.hpp"
#include "plan/plan.hpp"
#include "shim/guest_link.hpp"
#include "sys/deadline.hpp"
#include "sys/locked.hpp"

// Secrets on their way from the operator's store to sandbox-init: read into locked memory, sent,
// wiped. No text, log or error of this program ever holds a part of one; names and paths may
// appear.
namespace sandbox::shim {

// STORE/NAME as the operator left it. Refuses (Code::permission_denied) a store or a file that
// somebody but its owner, root or this user, could read or write, and what is not a regular file;
// Code::not_found names the file and what to do; invalid_argument above 64 KiB; conflict when it
// shrinks meanwhile.
[[nodiscard]] Result<sys::LockedMemory> read_secret(const std::string& store,
                                                    const std::string& name);

// Gives every secret of the plan to sandbox-init. Requires: PROVISIONED came, READY was not sent.
// One piece of evidence a secret: sandbox-init holds it, or has made its file. Stops at the first
// that fails, and the launch with it.
[[nodiscard]] Result<std::vector<driver::Evidence>> give_secrets(ControlStream& stream,
                                                                 const plan::ExecutionPlan& plan,
                                                                 const std::string& store,
                                                                 sys::Deadline deadline);

}  // namespace sandbox::shim
