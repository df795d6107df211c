// SPDX-License-Identifier: Apache-2.0
#include "supervisor/reconcile.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/failpoint.hpp"
#include "sys/file.hpp"

namespace sandbox::supervisor {

namespace {

using ledger::Claim;
using ledger::ClaimOutcome;
using ledger::Entry;
using ledger::Ledger;
using ledger::Sandbox;
using ledger::State;

// How long reconcile may hold one sandbox before others think it is stuck. Its own longest step is
// the wait for killed processes (ResourceContext::patience), a few times over.
constexpr std::uint64_t kHold = 60'000'000'000;  // ns

// 128 + 9 would claim that a signal was seen; 125 is "our failure" (design: exit codes).
constexpr ledger::Exit kUnknownExit{125, 0, ledger::ExitReason::unknown, 0};

// This process as the holder of claims, and the question whether another holder lives.
struct Self {
    sys::ProcessIdentity identity;
    ledger::Alive alive;
};

Result<Self> this_process(const std::string& boot_id)
{
    Self self;
    // Asked with the write lock held: only /proc and a pidfd, nothing that waits.
    self.identity = TRY(sys::identity_of(getpid()));
    self.alive = [boot_id](const sys::ProcessIdentity& identity) {
        if (identity.boot_id != boot_id) return false;
        const auto handle = sys::Pidfd::open(identity);
        // In doubt it lives: nothing is taken from the living.
        return handle.has_value() && !handle->ended().value_or(false);
    };
    return self;
}

std::string describe(const Entry& entry)
{
    return std::string(to_string(entry.kind)) + " " + entry.name;
}

std::string describe(const Orphan& orphan)
{
    switch (orphan.kind) {
    case OrphanKind::cgroup: return "cgroup " + orphan.name;
    case OrphanKind::run_dir: return "runtime folder " + orphan.name;
    case OrphanKind::state_dir: return "state folder " + orphan.name;
    }
    return orphan.name;
}

// Acts on one sandbox at a time, under a claim.
class Applier {
public:
    Applier(Ledger& ledger, const driver::ResourceContext& context, Self self, Report& report)
        : ledger_(ledger), context_(context), self_(std::move(self)), report_(report)
    {
    }

    void apply(const Action& action)
    {
        // Before acting: also what fails was found.
        report_.found.push_back({action.id, subject_of(action), action.why});
        switch (action.kind) {
        case Action::Kind::leave:
        case Action::Kind::report_foreign:
            report_.left.push_back({action.id, subject_of(action), action.why});
            return;
        case Action::Kind::remove_orphan: note(action, remove(action.orphan)); return;
        case Action::Kind::unwind:
        case Action::Kind::release_claim: note(action, take_over(action.id)); return;
        }
    }

private:
    static std::string subject_of(const Action& action)
    {
        const bool orphan = action.kind == Action::Kind::remove_orphan ||
                            action.kind == Action::Kind::report_foreign;
        return orphan ? describe(action.orphan) : "sandbox";
    }

    void note(const Action& action, const Status& status)
    {
        // A failure is a line of the report, and the next sandbox is looked at.
        if (!status)
            report_.left.push_back({action.id, subject_of(action), status.error().message()});
    }

    // Claims it, looks again (what was seen before may be stale), acts, and lets go.
    Status take_over(const SandboxId& id)
    {
        const std::string operation = "reconcile-" + TRY(ledger::new_sandbox_id()).str();
        // From here on nobody else acts on it; what was seen before may be stale.
        const auto outcome = TRY(claim(id, operation));
        LedgerView view;
        if (auto sandbox = TRY(ledger_.find(id))) view.sandboxes.push_back(*std::move(sandbox));
        for (auto& entry : TRY(ledger_.entries(id))) {
            if (entry.state != ledger::EntryState::undone) view.open.push_back(std::move(entry));
        }
        // Its holder was found dead or late by claim() itself: a fact of its own. The row says
        // `lost` by now, so the view would not show it.
        if (outcome.previous) view.claims.push_back(*outcome.previous);
        // No candidates: orphans are not claimed, and were looked at by the caller.
        auto observed = TRY(observe(view, {}, context_));
        if (outcome.previous) observed.holders[outcome.previous->operation] = Life::dead;
        for (const auto& action : diff(view, observed)) {
            if (action.kind == Action::Kind::unwind)
                return unwind(view.sandboxes.front(), action, operation);
            if (action.kind == Action::Kind::release_claim) {
                report_.removed.push_back({id, "claim " + action.operation, action.why});
            }
        }
        return finish(operation);
    }

    Result<ClaimOutcome> claim(const SandboxId& id, const std::string& operation)
    {
        const auto moment = TRY(ledger::now());
        auto transaction = TRY(ledger_.begin());
        // The step is named for people: `ps` and a refused caller see what is being done.
        auto outcome = TRY(transaction.claim(
            {operation, id, "reconcile", "", self_.identity, "unwind", moment.boottime_ns + kHold},
            moment, self_.alive));
        failpoint("reconcile.before-claim");
        TRY_VOID(transaction.commit());
        failpoint("reconcile.claimed");
        return outcome;
    }

    Status finish(const std::string& operation)
    {
        auto transaction = TRY(ledger_.begin());
        TRY_VOID(transaction.finish(operation, self_.identity, "{}"));
        return transaction.commit();
    }

    Status unwind(const Sandbox& sandbox, const Action& action, const std::string& operation)
    {
        const auto unwound = driver::unwind(action.entries, context_);
        failpoint("reconcile.unwound");
        const bool all = unwound.left.empty();
        // What could not be removed keeps the sandbox from being forgotten; the next one tries
        // again.
        State rest = action.final_state;
        if (!all && rest == State::deleted) {
            rest = ledger::is_active(sandbox.state) ? State::dead : sandbox.state;
        }
        // One commit: entries, exit and state agree at every moment.
        auto transaction = TRY(ledger_.begin());
        for (const auto* list : {&unwound.gone, &unwound.foreign}) {
            for (const auto& entry : *list) TRY_VOID(transaction.undone(entry.seq));
        }
        if (action.record_unknown_exit) {
            TRY_VOID(transaction.record_exit(sandbox.id, sandbox.generation, kUnknownExit));
        }
        if (rest != sandbox.state) TRY_VOID(transaction.set_state(sandbox.id, rest));
        // Last: it proves that nobody took over while we were at work; else all of this is dropped.
        TRY_VOID(transaction.finish(operation, self_.identity, "{}"));
        failpoint("reconcile.before-commit");
        TRY_VOID(transaction.commit());
        failpoint("reconcile.committed");

        for (const auto& entry : unwound.gone) {
            report_.removed.push_back({sandbox.id, describe(entry), action.why});
        }
        for (const auto& entry : unwound.foreign) {
            report_.left.push_back({sandbox.id, describe(entry), "foreign: not what we made"});
        }
        for (const auto& left : unwound.left) {
            report_.left.push_back({sandbox.id, describe(left.entry), left.why});
        }
        if (rest != sandbox.state) {
            report_.now_resting.push_back({sandbox.id, std::string(to_string(rest)), action.why});
        }
        return {};
    }

    Status remove(const Orphan& orphan)
    {
        // A launch that began after the view was read has its row by now: a row is older than its
        // effects.
        if (TRY(ledger_.find(orphan.id))) {
            return fail(Code::conflict, "a ledger row came to be meanwhile");
        }
        Entry entry;
        entry.sandbox = orphan.id;
        entry.name = orphan.name;
        switch (orphan.kind) {
        case OrphanKind::cgroup: entry.kind = ledger::EntryKind::cgroup_root; break;
        case OrphanKind::run_dir: entry.kind = ledger::EntryKind::run_dir; break;
        case OrphanKind::state_dir: entry.kind = ledger::EntryKind::state_dir; break;
        }
        // No row, so no claim: whoever is second finds nothing left to remove.
        std::vector<Entry> entries{entry};
        if (orphan.kind == OrphanKind::state_dir) {
            // With its logs: there is no row left by which anybody could ask for them.
            Entry logs = entry;
            logs.kind = ledger::EntryKind::log_files;
            logs.name = driver::resource_name(logs.kind, orphan.id, "");
            // Higher seq, undone first: it lies inside.
            logs.seq = 1;
            entries.push_back(std::move(logs));
        }
        const auto unwound = driver::unwind(entries, context_);
        failpoint("reconcile.orphan");
        if (!unwound.left.empty()) return fail(Code::io, unwound.left.front().why);
        report_.removed.push_back({orphan.id, describe(orphan), "no ledger row stands behind it"});
        return {};
    }

    Ledger& ledger_;
    const driver::ResourceContext& context_;
    Self self_;
    Report& report_;
};

Result<Report> apply(Ledger& ledger, const driver::ResourceContext& context, const LedgerView& view,
                     const Observed& observed)
{
    Report report;
    report.sandboxes = view.sandboxes.size();
    const auto actions = diff(view, observed);
    if (actions.empty()) return report;
    // Only with something to do: to identify ourselves reads /proc.
    Applier applier(ledger, context, TRY(this_process(context.boot_id)), report);
    for (const auto& action : actions) applier.apply(action);
    return report;
}

}  // namespace

Result<Report> reconcile(Ledger& ledger, const driver::ResourceContext& context)
{
    // Nothing is undone on the word of a damaged ledger.
    TRY_VOID(ledger.check());
    // Candidates before the ledger: an object that is seen had its row when the ledger is read
    // later. The other way round a fresh launch would look like an orphan.
    auto candidates = TRY(find_candidates(context));
    const auto view = TRY(read_view(ledger));
    const auto observed = TRY(observe(view, std::move(candidates), context));
    Report report = TRY(apply(ledger, context, view, observed));
    // After all: an empty cgroup that is left would be the only trace of sandboxd at rest.
    // A shim that was killed could not leave its cgroup; busy ones stay.
    TRY_VOID(
        sys::cgroup::remove_if_empty(context.cgroups, driver::shims_cgroup(context.cgroup_parent)));
    TRY_VOID(sys::cgroup::remove_if_empty(context.cgroups, context.cgroup_parent));
    return report;
}

Result<Report> reconcile_one(Ledger& ledger, const driver::ResourceContext& context,
                             const SandboxId& id)
{
    LedgerView view;
    // Not asked for: without candidates no orphan is judged.
    view.has_history = true;
    auto sandbox = TRY(ledger.find(id));
    if (!sandbox) return fail(Code::not_found, "no sandbox has the id " + id.str());
    view.sandboxes.push_back(*std::move(sandbox));
    for (auto& entry : TRY(ledger.entries(id))) {
        if (entry.state != ledger::EntryState::undone) view.open.push_back(std::move(entry));
    }
    if (auto claim = TRY(ledger.claim_of(id))) view.claims.push_back(*std::move(claim));
    const auto observed = TRY(observe(view, {}, context));
    return apply(ledger, context, view, observed);
}

}  // namespace sandbox::supervisor
