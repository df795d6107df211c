// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/result.hpp"
#include "ledger/ledger.hpp"
#include "supervisor/desired.hpp"
#include "supervisor/embedded.hpp"
#include "sys/fd.hpp"

namespace sandbox::supervisor {

// Waits, without limit, until no other apply acts on this state; its end, also by a kill, ends the
// turn (flock(2): the lock belongs to the open folder that is returned). Makes the state folder
// when it is missing.
[[nodiscard]] Result<sys::UniqueFd> take_turn(const Paths& paths);

// Does one step at a time with the calls of the service. What fails is said in the item: the next
// pass finds the same difference and tries again. Borrows the service, which must outlive it; opens
// the ledger when first needed. Blocks as long as the step takes (a stop has its timeout).
class StepRunner {
public:
    explicit StepRunner(EmbeddedService& service) : service_(service) {}

    // `present` is the sandbox the step names, or nullptr; never nullptr for start, replace, update
    // and remove. Fills in `item.failure`, nothing else.
    void act(const desired::Step& step, const desired::Present* present, Applied& item);
    // The audit event of what was done, or could not be.
    void record(const desired::Step& step, const desired::Present* present, const Applied& item);
    // Writes the queued audit lines into the log. Call once, after the last step.
    void settle();

private:
    [[nodiscard]] Status perform(const desired::Step& step, const desired::Present* present);
    [[nodiscard]] Status create(const desired::Step& step);
    [[nodiscard]] Status start(const desired::Step& step, const desired::Present& present);
    [[nodiscard]] Status replace(const desired::Step& step, const desired::Present& present);
    [[nodiscard]] Status bring_back(const desired::Step& step, const desired::Present& present,
                                    const Result<plan::ExecutionPlan>& before, Status failed);
    [[nodiscard]] Status update(const desired::Present& present, const plan::ExecutionPlan& plan);
    [[nodiscard]] Status remove(const desired::Present& present);
    [[nodiscard]] Status adopt(const ledger::Managed& managed);
    [[nodiscard]] Status write_event(const desired::Step& step, const desired::Present* present,
                                     const Applied& item);
    [[nodiscard]] Result<ledger::Ledger*> ledger();

    EmbeddedService& service_;
    std::optional<ledger::Ledger> ledger_;
    std::optional<SandboxId> made_;  // by the step just done
};

}  // namespace sandbox::supervisor
