// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/failpoint.hpp"
#include "canon/json.hpp"
#include "shim/journal.hpp"

// What the journal says of pauses and of generations that follow each other.
namespace sandbox::shim {

namespace {

// Outlives the generations of one shim: how it is reached, and what rests with the sandbox.
// Everything else is undone between two generations.
bool is_of_shim(ledger::EntryKind kind)
{
    using enum ledger::EntryKind;
    return kind == shim_process || kind == shim_socket || kind == run_dir || kind == id_range ||
           driver::outlives_run(kind);
}

audit::ReceiptItem receipt(const ledger::Entry& entry, bool gone)
{
    return {std::string(ledger::to_string(entry.kind)), entry.name, true, gone, gone};
}

}  // namespace

Status Journal::tell(audit::Body event)
{
    auto transaction = TRY(ledger_.begin());
    TRY_VOID(append(transaction, {std::move(event)}));
    return transaction.commit();
}

Status Journal::log_worker_replaced(const sys::ProcessIdentity& worker)
{
    // The identity goes with the event: from now on reconcile knows the new process by it.
    observed(ledger::EntryKind::log_worker, ledger::encode(worker));
    auto transaction = TRY(ledger_.begin());
    TRY_VOID(write_observed(transaction));
    TRY_VOID(append(transaction, {audit::Acted{"log-worker", "it was killed; another follows"}}));
    return transaction.commit();
}

Status Journal::change_state(ledger::State state, std::string verb, std::string why)
{
    auto transaction = TRY(ledger_.begin());
    TRY_VOID(transaction.set_state(id_, state));
    TRY_VOID(append(transaction, {audit::Acted{std::move(verb), std::move(why)}}));
    return transaction.commit();
}

Status Journal::paused(std::string why)
{
    failpoint("pause.before-commit");
    TRY_VOID(change_state(ledger::State::paused, "pause", std::move(why)));
    failpoint("pause.after-commit");
    return {};
}

Status Journal::resumed(std::string why)
{
    failpoint("resume.before-commit");
    TRY_VOID(change_state(ledger::State::running, "resume", std::move(why)));
    failpoint("resume.after-commit");
    return {};
}

Result<std::string> Journal::updated(const plan::ExecutionPlan& plan, std::string plan_path,
                                     audit::Updated event)
{
    canon::Json labels = canon::Json::object();
    for (const auto& [key, value] : plan->request.labels) labels[key] = value;
    failpoint("update.before-commit");
    auto transaction = TRY(ledger_.begin());
    ledger::Sandbox row = TRY(transaction.get(id_));
    // Only digest, path and labels: what else the row says is decided at the start.
    std::string before = std::exchange(row.plan_path, std::move(plan_path));
    row.plan_digest = plan.digest().str();
    row.labels = TRY(canon::serialize(labels));
    TRY_VOID(transaction.update(row));
    TRY_VOID(append(transaction, {std::move(event)}));
    TRY_VOID(transaction.commit());
    return before;
}

Result<std::vector<ledger::Entry>> Journal::open_entries_of_run()
{
    auto entries = TRY(ledger_.entries(id_));
    std::erase_if(entries, [](const ledger::Entry& entry) {
        return entry.state == ledger::EntryState::undone || is_of_shim(entry.kind);
    });
    return entries;
}

Status Journal::between(const driver::Unwound& unwound, ledger::State state,
                        audit::Restarting event, std::int64_t due_ns)
{
    failpoint("between.before-commit");
    const auto self = TRY(sys::identity_of(getpid()));
    const ledger::Moment now = TRY(ledger::now());
    audit::Cleaned cleaned;
    auto transaction = TRY(ledger_.begin());
    for (const auto* list : {&unwound.gone, &unwound.foreign}) {
        for (const ledger::Entry& entry : *list) {
            // As in cleaned(): what was replaced by somebody else's is gone for us.
            TRY_VOID(transaction.undone(entry.seq));
            cleaned.items.push_back(receipt(entry, true));
        }
    }
    for (const auto& left : unwound.left) cleaned.items.push_back(receipt(left.entry, false));
    if (TRY(transaction.get(id_)).state != state) TRY_VOID(transaction.set_state(id_, state));
    if (launching_) TRY_VOID(transaction.finish(operation_, self, "{}"));
    const std::string step = "attempt " + std::to_string(event.attempt) +
                             (event.most ? " of " + std::to_string(*event.most) : "") + " after " +
                             event.why;
    // Derived from id and generation: a shim that was killed here and its successor name the same
    // operation.
    operation_ = std::string(kRestartVerb) + "-" + id_.str() + "-" +
                 std::to_string(generation_ + 1);
    // Nobody else can hold it: the claim of the launch was ours, and was finished just above.
    TRY(transaction.claim({operation_, id_, std::string(kRestartVerb), "", self, step,
                           static_cast<std::uint64_t>(due_ns) + kRestartGraceNs},
                          now, [](const auto& /*holder*/) { return true; }));
    TRY_VOID(append(transaction, {std::move(cleaned), std::move(event)}));
    TRY_VOID(transaction.commit());
    launching_ = true;
    failpoint("between.after-commit");
    return {};
}

Status Journal::begin_again(LaunchRequest& request)
{
    const auto self = TRY(sys::identity_of(getpid()));
    const ledger::Moment now = TRY(ledger::now());
    std::vector<ledger::Intent> intents;
    for (const JournaledIntent& intent : request.intents) {
        const auto kind = ledger::parse_entry_kind(intent.kind);
        // The shim's own entries go on; those of the run are intended anew, under new numbers.
        if (kind && !is_of_shim(*kind)) intents.push_back({*kind, intent.name});
    }
    failpoint("restart.before-commit");
    auto transaction = TRY(ledger_.begin());
    const std::uint32_t generation = TRY(transaction.begin_generation(id_));
    TRY_VOID(transaction.set_shim(id_, self));
    const std::uint64_t first = TRY(transaction.intend(id_, intents));
    TRY_VOID(transaction.set_state(id_, ledger::State::prepared));
    // The same claim, another step: there is no moment in which the sandbox is nobody's.
    TRY_VOID(transaction.set_step(operation_, self, "launch", now.boottime_ns + kRestartGraceNs));
    TRY_VOID(transaction.commit());
    failpoint("restart.after-commit");
    request.intents.clear();
    for (std::size_t i = 0; i < intents.size(); ++i) {
        request.intents.push_back(
            {first + i, std::string(ledger::to_string(intents[i].kind)), intents[i].name});
    }
    request.binding.generation = generation;
    request.operation = operation_;
    // Seen by the last generation: its numbers mean nothing now.
    pending_.clear();
    bind(request);
    return {};
}

Status Journal::give_up_restart()
{
    auto transaction = TRY(ledger_.begin());
    TRY_VOID(transaction.finish(operation_, TRY(sys::identity_of(getpid())), "{}"));
    TRY_VOID(transaction.commit());
    launching_ = false;
    failpoint("restart.given-up");
    return {};
}

}  // namespace sandbox::shim
