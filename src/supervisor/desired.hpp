// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ledger/records.hpp"
#include "plan/plan.hpp"
#include "supervisor/service.hpp"

// What should be, what is, and what is to be done about the difference. Pure.
namespace sandbox::supervisor::desired {

// One file, with what it asks for; the plan is of today's policy and facts.
struct Wanted {
    std::string file;
    std::string name;                         // the profile's; empty when it cannot be read
    std::optional<plan::ExecutionPlan> plan;  // nothing: wrong, denied, or not to be started
    ledger::Origin origin = ledger::Origin::apply;
    bool start = true;  // false: it only lies there (profiles.d without autostart)
};

// One sandbox that is not `deleted`.
struct Present {
    ledger::Sandbox row;
    bool alive = false;         // its shim lives
    bool of_this_boot = true;   // its latest start was
    std::optional<ledger::Managed> managed;   // nothing: `run` made it
    std::optional<plan::ExecutionPlan> plan;  // what it runs; nothing: not readable
};

// What the caller looked at: without it, "not among the files" and "its file is gone" are the same.
struct Scope {
    std::vector<std::string> folders;  // of which all files are given
    ApplyRequest::Asker asker = ApplyRequest::Asker::person;
};

// One thing to do, with all that is needed to do it and to tell a person why.
struct Step {
    Applied::Action action = Applied::Action::nothing;
    std::string file;
    std::string name;
    std::optional<std::size_t> wanted;  // index
    std::optional<SandboxId> present;  // the sandbox it is about, where there is one
    std::optional<plan::ExecutionPlan> plan;  // what is to run afterwards
    ledger::Managed behind;  // what stands behind it from then on
    bool adopt = false;  // something else, or nothing, stands behind the present one
    std::vector<plan::Change> changes;
    std::vector<plan::Change> pending;
    std::string why;
};

// In the order of the files, then what goes. Running it again after its steps were done gives
// nothing to do. Never fails: what cannot be had is a `keep` or a `refuse`.
std::vector<Step> diff(const std::vector<Wanted>& wanted, const std::vector<Present>& present,
                       const Scope& scope);

}  // namespace sandbox::supervisor::desired
