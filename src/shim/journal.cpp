// SPDX-License-Identifier: Apache-2.0
#include "shim/journal.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/failpoint.hpp"
#include "shim/audit_log.hpp"

namespace sandbox::shim {

Result<Journal> Journal::open(const std::string& state_root)
{
    auto ledger = TRY(ledger::Ledger::open(HostPath(state_root), ledger::OpenMode::read_write));
    return Journal(std::move(ledger), state_root);
}

void Journal::bind(const LaunchRequest& request)
{
    id_ = request.binding.id;
    name_ = request.binding.name;
    generation_ = request.binding.generation;
    operation_ = request.operation;
    on_exit_ = request.on_exit;
    intents_ = request.intents;
}

void Journal::observed(ledger::EntryKind kind, std::string identity)
{
    // The first of its kind: a launch has one of each but sessions and placeholders, see below.
    const std::string_view wanted = ledger::to_string(kind);
    const auto intent = std::find_if(intents_.begin(), intents_.end(),
                                     [&](const auto& i) { return i.kind == wanted; });
    if (intent != intents_.end()) pending_.emplace_back(intent->seq, std::move(identity));
}

void Journal::observed_name(ledger::EntryKind kind, std::string_view name, std::string identity)
{
    const std::string_view wanted = ledger::to_string(kind);
    for (const JournaledIntent& intent : intents_) {
        if (intent.kind == wanted && intent.name == name) {
            pending_.emplace_back(intent.seq, std::move(identity));
        }
    }
}

Status Journal::write_observed(ledger::Transaction& transaction)
{
    for (const auto& [seq, identity] : pending_) TRY_VOID(transaction.observed(seq, identity));
    return {};
}

Status Journal::append(ledger::Transaction& transaction, std::vector<audit::Body> bodies)
{
    const ledger::Moment now = TRY(ledger::now());
    // One time for all lines of a commit.
    const audit::Subject subject{id_, name_, generation_, operation_, now.utc};
    return queue_audit(ledger_, transaction, subject, std::move(bodies));
}

Status Journal::write_running(ledger::Transaction& transaction, const sys::ProcessIdentity& pid1,
                              audit::Launched event)
{
    TRY_VOID(write_observed(transaction));
    TRY_VOID(transaction.set_pid1(id_, pid1));
    // Through `created`, though nobody can see it: the table of transitions has no shorter way.
    TRY_VOID(transaction.set_state(id_, ledger::State::created));
    TRY_VOID(transaction.set_state(id_, ledger::State::running));
    TRY_VOID(append(transaction, {std::move(event)}));
    // The claim ends in the same commit: a living shim is claim enough from here on.
    return transaction.finish(operation_, TRY(sys::identity_of(getpid())), "{}");
}

Status Journal::write_ended(ledger::Transaction& transaction, const ledger::Exit& exit,
                            const std::vector<audit::Violation>& violations)
{
    audit::Exited event;
    if (exit.signal == 0)
        event.code = exit.code;
    else
        event.signal = exit.signal;
    event.reason = ledger::to_string(exit.reason);
    event.oom_kills = exit.oom_kills;
    std::vector<audit::Body> bodies(violations.begin(), violations.end());
    bodies.emplace_back(std::move(event));
    // First: if this generation has its exit already, nothing of the rest may be written.
    TRY_VOID(transaction.record_exit(id_, generation_, exit));
    TRY_VOID(transaction.set_state(id_, ledger::State::stopped));
    return append(transaction, std::move(bodies));
}

void Journal::rehearse()
{
    auto transaction = ledger_.begin();
    const auto self = sys::identity_of(getpid());
    if (!transaction || !self) return;
    // Dropped with the transaction: no commit, no sync. Errors are those of a row that is not there
    // yet.
    static_cast<void>(write_running(*transaction, *self, {}));
    static_cast<void>(write_ended(*transaction, {}, {}));
}

Status Journal::running(const sys::ProcessIdentity& pid1, audit::Launched event)
{
    failpoint("running.before-commit");
    auto transaction = TRY(ledger_.begin());
    TRY_VOID(write_running(transaction, pid1, std::move(event)));
    TRY_VOID(transaction.commit());
    launching_ = false;
    pending_.clear();
    failpoint("running.after-commit");
    return {};
}

Status Journal::ran(const sys::ProcessIdentity& pid1, audit::Launched event,
                    const ledger::Exit& exit, const std::vector<audit::Violation>& violations)
{
    failpoint("ran.before-commit");
    auto transaction = TRY(ledger_.begin());
    TRY_VOID(write_running(transaction, pid1, std::move(event)));
    TRY_VOID(write_ended(transaction, exit, violations));
    TRY_VOID(transaction.commit());
    launching_ = false;
    pending_.clear();
    failpoint("ran.after-commit");
    return {};
}

Status Journal::failed(audit::LaunchFailed event)
{
    // What was made before the failure is recorded as observed, so that it is undone by identity.
    auto transaction = TRY(ledger_.begin());
    TRY_VOID(write_observed(transaction));
    TRY_VOID(append(transaction, {std::move(event)}));
    TRY_VOID(transaction.commit());
    pending_.clear();
    return {};
}

Status Journal::ended(const ledger::Exit& exit, const std::vector<audit::Violation>& violations)
{
    failpoint("ended.before-commit");
    auto transaction = TRY(ledger_.begin());
    TRY_VOID(write_ended(transaction, exit, violations));
    TRY_VOID(transaction.commit());
    failpoint("ended.after-commit");
    return {};
}

Result<std::uint64_t> Journal::intend(ledger::EntryKind kind, std::string name)
{
    const ledger::Intent intent{kind, std::move(name)};
    return intend(std::span(&intent, 1));
}

Result<std::uint64_t> Journal::intend(std::span<const ledger::Intent> intents)
{
    // A commit of its own: the effect may start when this returns.
    auto transaction = TRY(ledger_.begin());
    const std::uint64_t seq = TRY(transaction.intend(id_, intents));
    TRY_VOID(transaction.commit());
    return seq;
}

Status Journal::seen(std::uint64_t seq, const std::string& identity)
{
    auto transaction = TRY(ledger_.begin());
    TRY_VOID(transaction.observed(seq, identity));
    return transaction.commit();
}

Status Journal::write_down(std::vector<audit::Body> events)
{
    auto transaction = TRY(ledger_.begin());
    TRY_VOID(append(transaction, std::move(events)));
    return transaction.commit();
}

Status Journal::session_opened(audit::SessionOpened event)
{
    auto transaction = TRY(ledger_.begin());
    TRY_VOID(append(transaction, {std::move(event)}));
    return transaction.commit();
}

Status Journal::acted(std::string verb, std::string why)
{
    auto transaction = TRY(ledger_.begin());
    TRY_VOID(append(transaction, {audit::Acted{std::move(verb), std::move(why)}}));
    return transaction.commit();
}

Result<std::vector<ledger::Entry>> Journal::open_entries()
{
    auto entries = TRY(ledger_.entries(id_));
    std::erase_if(entries, [&](const ledger::Entry& entry) {
        if (entry.state == ledger::EntryState::undone) return true;
        // The shim cannot undo itself; cleaned() does it in its last commit.
        if (entry.kind == ledger::EntryKind::shim_process) return true;
        if (entry.kind == ledger::EntryKind::log_files) return true;
        // What rests with a kept sandbox goes with `rm`.
        return on_exit_ == OnExit::keep && driver::outlives_run(entry.kind);
    });
    return entries;
}

Status Journal::cleaned(const driver::Unwound& unwound, ledger::State state)
{
    failpoint("cleaned.before-commit");
    // Read before the transaction: only the shim's own entry is looked for, and nobody else writes
    // it.
    auto entries = TRY(ledger_.entries(id_));
    audit::Cleaned receipt;
    std::vector<audit::Body> bodies;
    auto transaction = TRY(ledger_.begin());
    for (const auto* list : {&unwound.gone, &unwound.foreign}) {
        for (const ledger::Entry& entry : *list) {
            TRY_VOID(transaction.undone(entry.seq));
            receipt.items.push_back(
                {std::string(ledger::to_string(entry.kind)), entry.name, true, true, true});
        }
    }
    for (const auto& left : unwound.left) {
        // "left" stays open in the ledger: reconcile finds it again.
        receipt.items.push_back(
            {std::string(ledger::to_string(left.entry.kind)), left.entry.name, true, false, false});
    }
    if (unwound.left.empty()) {
        // Ourselves: nothing is done after this commit but leaving.
        for (const ledger::Entry& entry : entries) {
            if (entry.kind == ledger::EntryKind::shim_process) {
                TRY_VOID(transaction.undone(entry.seq));
            }
        }
        const auto now_state = TRY(transaction.get(id_)).state;
        if (now_state != state) TRY_VOID(transaction.set_state(id_, state));
        if (on_exit_ == OnExit::remove) {
            TRY_VOID(transaction.set_state(id_, ledger::State::deleted));
            bodies.emplace_back(audit::Acted{"rm", "--rm"});
        }
    }
    bodies.emplace_back(std::move(receipt));
    TRY_VOID(append(transaction, std::move(bodies)));
    // A launch that never came to run still holds its claim.
    if (launching_) {
        TRY_VOID(transaction.finish(operation_, TRY(sys::identity_of(getpid())), "{}"));
    }
    TRY_VOID(transaction.commit());
    failpoint("cleaned.after-commit");
    return {};
}

Status Journal::settle()
{
    // Last: until here nothing may wait for the audit file's sync.
    TRY_VOID(flush_audit(ledger_, state_root_));
    return ledger_.compact(ledger::CompactWhen::large);
}

}  // namespace sandbox::shim
