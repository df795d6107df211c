// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "audit/audit.hpp"
#include "base/result.hpp"
#include "driver/resources.hpp"
#include "shim/generation.hpp"
#include "shim/journal.hpp"
#include "shim/restart.hpp"
#include "sys/deadline.hpp"
#include "sys/fd.hpp"

// One generation from its gate to its recorded exit, and what is taken away after it.
namespace sandbox::shim {

struct Kept {
    ledger::Exit exit;
    EndCause cause = EndCause::workload;
    Millis ran{0};                            // from the gate to the end
    sys::UniqueFd listener;                   // shim.sock; invalid: there was none yet
    sys::Deadline ttl = sys::Deadline::never();  // an update may have moved it
};

// Past here the workload runs. Its evidence was judged; it is written down while the first
// instructions execute. `launcher` and `listener` may be invalid. Blocks until the generation has
// ended and its exit is in the ledger. An Error: the gate could not be opened, or the ledger could
// not be written.
[[nodiscard]] Result<Kept> keep(Generation& running, Journal& journal, sys::UniqueFd launcher,
                                sys::UniqueFd listener, sys::Deadline ttl);

audit::LaunchFailed to_audit(const LaunchRequest& request, const LaunchFailure& failure);

// Undoes what this generation and its shim made, newest first, and says so in the ledger. Blocks
// for the death of killed processes. What cannot be undone stays in the ledger as open.
[[nodiscard]] Status unwind(Journal& journal, const LaunchRequest& request,
                            ledger::State final_state);
// Only what this generation made: another follows.
[[nodiscard]] Result<driver::Unwound> unwind_generation(Journal& journal,
                                                        const LaunchRequest& request);

}  // namespace sandbox::shim
