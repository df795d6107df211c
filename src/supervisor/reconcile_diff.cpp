// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <set>

#include "supervisor/reconcile.hpp"

// The pure half of reconcile: values in, actions out.
namespace sandbox::supervisor {

namespace {

using ledger::Claim;
using ledger::Desired;
using ledger::Entry;
using ledger::EntryKind;
using ledger::RemoveOnExit;
using ledger::Sandbox;
using ledger::State;

bool is_at_rest(State state)
{
    return state == State::stopped || state == State::failed || state == State::dead;
}

// Somebody asked for it to be gone, and nobody is at work on that any more.
bool is_to_be_removed(const Sandbox& sandbox)
{
    return sandbox.state == State::deleted || sandbox.desired == Desired::deleted ||
           sandbox.remove_on_exit == RemoveOnExit::yes;
}

bool is_removal_unfinished(const Sandbox& sandbox)
{
    if (sandbox.state == State::deleted) return false;
    return sandbox.desired == Desired::deleted ||
           (sandbox.remove_on_exit == RemoveOnExit::yes && is_at_rest(sandbox.state));
}

// What exists only for a run: a sandbox that rests without a shim may own a range of ids, its state
// folder and its logs, nothing else.
bool is_of_a_run(const Entry& entry)
{
    return !driver::outlives_run(entry.kind) && entry.kind != EntryKind::id_range;
}

std::vector<Entry> to_unwind(const Sandbox& sandbox, const std::vector<Entry>& open)
{
    const bool removed = is_to_be_removed(sandbox);
    std::vector<Entry> entries;
    // Removed: all but the logs, which outlive it; else only what exists for a run.
    std::copy_if(open.begin(), open.end(), std::back_inserter(entries), [&](const Entry& entry) {
        return removed ? entry.kind != EntryKind::log_files : !driver::outlives_run(entry.kind);
    });
    return entries;
}

State resting_state(const Sandbox& sandbox)
{
    if (is_to_be_removed(sandbox)) return State::deleted;
    if (!ledger::is_active(sandbox.state)) return sandbox.state;
    // An exit that was recorded stands, though the shim died before it could say `stopped`.
    return sandbox.exit && ledger::may_become(sandbox.state, State::stopped) ? State::stopped
                                                                             : State::dead;
}

template <class Key>
bool is_alive(const std::map<Key, Life>& lives, const Key& key)
{
    const auto found = lives.find(key);
    return found != lives.end() && found->second == Life::alive;
}

struct Subject {
    const Sandbox& sandbox;
    std::vector<Entry> open;
    const Claim* claim = nullptr;
};

// Why it has to be unwound; empty: it has not.
std::string reason_to_unwind(const Subject& subject)
{
    const Sandbox& sandbox = subject.sandbox;
    const auto unwindable = to_unwind(sandbox, subject.open);
    const bool active = ledger::is_active(sandbox.state);
    // An active sandbox without a living holder is unwound even if it owns nothing: its state is a
    // lie.
    if (subject.claim != nullptr && (active || !unwindable.empty())) {
        return "whoever did \"" + subject.claim->verb + "\" (" + subject.claim->step +
               ") is gone or late";
    }
    if (sandbox.shim && (active || !unwindable.empty())) return "its shim is gone";
    if (std::any_of(unwindable.begin(), unwindable.end(), is_of_a_run)) {
        return "it has no shim and still owns " + std::string(to_string(unwindable.back().kind));
    }
    if (is_removal_unfinished(sandbox)) return "its removal was not finished";
    return {};
}

void judge(const Subject& subject, const Observed& observed, std::vector<Action>& actions)
{
    const Sandbox& sandbox = subject.sandbox;
    Action action;
    action.id = sandbox.id;
    const bool lives = is_alive(observed.shims, sandbox.id);
    // Alive but late is not held: it was told its deadline, and must stop when it lost the claim.
    const bool held = subject.claim != nullptr &&
                      is_alive(observed.holders, subject.claim->operation) &&
                      observed.boottime_ns <= subject.claim->deadline_ns;
    action.why = reason_to_unwind(subject);
    // Whoever lives keeps what it has, whatever else looks wrong.
    if (held || lives) {
        if (!held && subject.claim != nullptr) {
            action.kind = Action::Kind::release_claim;
            action.operation = subject.claim->operation;
            action.why = "whoever did \"" + subject.claim->verb +
                         "\" is gone or late; the sandbox lives";
            actions.push_back(std::move(action));
        } else if (held && !lives && !action.why.empty()) {
            // Only a difference that somebody is just closing is worth a line.
            action.kind = Action::Kind::leave;
            action.why = "process " + std::to_string(subject.claim->holder.pid) + " does " +
                         subject.claim->verb;
            actions.push_back(std::move(action));
        }
        return;
    }
    if (!action.why.empty()) {
        action.kind = Action::Kind::unwind;
        action.entries = to_unwind(sandbox, subject.open);
        action.final_state = resting_state(sandbox);
        // A generation always ends with an exit: who waits must get an answer.
        action.record_unknown_exit = ledger::is_active(sandbox.state) && !sandbox.exit;
        actions.push_back(std::move(action));
    } else if (subject.claim != nullptr) {
        action.kind = Action::Kind::release_claim;
        action.operation = subject.claim->operation;
        action.why = "whoever did \"" + subject.claim->verb + "\" is gone or late";
        actions.push_back(std::move(action));
    }
}

// Why it is not provably ours; empty: it is. All that speaks against it must fail: a wrong removal
// cannot be undone, a wrong report costs a line.
std::string doubt(const Orphan& orphan, const LedgerView& ledger)
{
    if (!ledger.has_history) return "this ledger is new and knows nothing of what came before it";
    if (!orphan.owned_by_us) return "another user owns it";
    if (orphan.live_process) return "a process still runs for it";
    if (orphan.kind == OrphanKind::cgroup) {
        if (orphan.populated) return "processes are in it";
        if (!orphan.has_our_folder)
            return "no folder of ours goes with it: it may be another root's";
    }
    return {};
}

}  // namespace

std::vector<Action> diff(const LedgerView& ledger, const Observed& observed)
{
    std::map<SandboxId, std::vector<Entry>> open;
    for (const auto& entry : ledger.open) open[entry.sandbox].push_back(entry);
    std::map<SandboxId, const Claim*> claims;
    for (const auto& claim : ledger.claims) claims[claim.sandbox] = &claim;

    std::vector<Action> actions;
    std::set<SandboxId> known;
    for (const auto& sandbox : ledger.sandboxes) {
        known.insert(sandbox.id);
        Subject subject{sandbox, {}, nullptr};
        if (const auto found = open.find(sandbox.id); found != open.end()) {
            subject.open = found->second;
        }
        if (const auto found = claims.find(sandbox.id); found != claims.end()) {
            subject.claim = found->second;
        }
        judge(subject, observed, actions);
    }
    // Asked again here: the orphans were found without the ledger's lock.
    for (const auto& orphan : observed.orphans) {
        if (known.contains(orphan.id)) continue;
        Action action;
        action.id = orphan.id;
        action.orphan = orphan;
        action.why = doubt(orphan, ledger);
        action.kind = action.why.empty() ? Action::Kind::remove_orphan
                                         : Action::Kind::report_foreign;
        if (action.why.empty()) action.why = "no ledger row stands behind it";
        actions.push_back(std::move(action));
    }
    return actions;
}

}  // namespace sandbox::supervisor
