// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "driver/backend.hpp"
#include "ledger/records.hpp"
#include "plan/plan.hpp"
#include "shim/journal.hpp"
#include "shim/keep.hpp"
#include "shim/request.hpp"

namespace sandbox::shim {

// What every generation of one shim is made from. Borrowed; all of it outlives the series.
struct SeriesParts {
    Journal& journal;
    const driver::SealedPrograms& programs;
    char* log_marker;
};

// Starts further generations as the restart policy says, each after its pause, until the sandbox
// stays down. `request` and `plan` are the last generation's, before and after. Returns the state
// to rest in: stopped, or failed when the last attempt never came to run. What the last generation
// made may still be there: the caller unwinds.
[[nodiscard]] ledger::State restart_series(const SeriesParts& parts, LaunchRequest& request,
                                           plan::ExecutionPlan& plan, Kept first);

}  // namespace sandbox::shim
