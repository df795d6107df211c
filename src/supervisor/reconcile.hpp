// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "driver/resources.hpp"
#include "ledger/ledger.hpp"
#include "ledger/records.hpp"

// Reconcile: what the ledger says, what the kernel shows, and what is to be done about the
// difference. diff() is pure; observe() and apply() are its hands.
namespace sandbox::supervisor {

// What the ledger holds, as it was read. A value; diff() may be given any.
struct LedgerView {
    std::vector<ledger::Sandbox> sandboxes;  // deleted ones included
    std::vector<ledger::Entry> open;         // not undone
    std::vector<ledger::Claim> claims;       // active
    // False for a ledger that has never held an entry: then nothing found is provably ours.
    bool has_history = false;
};

// What can be left without a row, for instance when the ledger's file was lost.
enum class OrphanKind { cgroup, run_dir, state_dir };

// A thing with a name of our form (32 hex digits) that no ledger row stands behind.
struct Orphan {
    OrphanKind kind = OrphanKind::cgroup;
    SandboxId id;
    std::string name;  // cgroup: path below the hierarchy roots; folders: as in the ledger
    // Facts the verdict rests on.
    bool owned_by_us = false;      // owner is our effective user
    bool populated = false;        // cgroup: processes in it or below
    bool live_process = false;     // a process carries "shim:ID" or "log:ID"
    bool has_our_folder = false;   // cgroup: RUN/ID or STATE/sandboxes/ID is there too
    bool operator==(const Orphan&) const = default;
};

enum class Life { dead, alive };

// What the kernel shows. Missing entries count as dead.
struct Observed {
    std::map<SandboxId, Life> shims;         // of sandboxes that have a shim identity
    std::map<std::string, Life> holders;     // of active claims, by operation
    std::uint64_t boottime_ns = 0;       // against the deadlines of claims of this boot
    std::vector<Orphan> orphans;  // diff() drops those the ledger knows
};

// One verdict. `why` is for people and never empty.
struct Action {
    enum class Kind {
        leave,           // it lives, or somebody who lives is acting on it
        unwind,          // undo `entries` from the last to the first, then rest in `final_state`
        release_claim,   // its holder is gone, the sandbox itself is well
        remove_orphan,
        report_foreign,  // looks like ours, is not provably so: left alone
    };
    Kind kind = Kind::leave;
    SandboxId id;
    std::vector<ledger::Entry> entries;  // by rising seq
    ledger::State final_state = ledger::State::dead;
    bool record_unknown_exit = false;
    std::string operation;  // release_claim
    Orphan orphan;
    std::string why;
    bool operator==(const Action&) const = default;
};

// In a stable order: sandboxes as listed, then orphans. A clean sandbox gives no action. Doing the
// actions and asking again gives nothing (what was left alone is reported again).
std::vector<Action> diff(const LedgerView& ledger, const Observed& observed);

struct ReportLine {
    SandboxId id;
    std::string what;  // "cgroup_root /sandbox/ID", "claim run-…"
    std::string why;
    bool operator==(const ReportLine&) const = default;
};

struct Report {
    std::size_t sandboxes = 0;          // looked at
    std::vector<ReportLine> found;      // differences, one a sandbox or orphan
    std::vector<ReportLine> removed;    // proven gone: looked for again and not there
    std::vector<ReportLine> left;       // alive, claimed, foreign or not removable
    std::vector<ReportLine> now_resting;  // sandboxes whose state changed; `what` is the state
    bool clean() const noexcept { return found.empty(); }
};

// Several reads, not one transaction: each sandbox is looked at again under its claim.
[[nodiscard]] Result<LedgerView> read_view(ledger::Ledger& ledger);
// Names of our form below RUN, STATE/sandboxes and the cgroup parent. Called before the ledger is
// read: what exists was intended earlier.
[[nodiscard]] Result<std::vector<Orphan>> find_candidates(const driver::ResourceContext& context);
// Looks at the processes of the view, and at those candidates that the view does not know.
[[nodiscard]] Result<Observed> observe(const LedgerView& view, std::vector<Orphan> candidates,
                                       const driver::ResourceContext& context);

// Full reconcile: check(), observe, diff, apply. Safe side by side with anything: each sandbox is
// claimed and looked at again before it is touched. Failing on one sandbox does not stop the rest.
// Errors: the ledger cannot be read or is damaged (then nothing was touched).
[[nodiscard]] Result<Report> reconcile(ledger::Ledger& ledger,
                                       const driver::ResourceContext& context);

// One sandbox only: for rm, and for take-over by an embedded verb. Does nothing to one whose shim
// lives or that somebody alive holds. not_found: no such row. Without check(): the way to a start
// must not read the whole file.
[[nodiscard]] Result<Report> reconcile_one(ledger::Ledger& ledger,
                                           const driver::ResourceContext& context,
                                           const SandboxId& id);

}  // namespace sandbox::supervisor
