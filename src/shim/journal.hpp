// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "audit/audit.hpp"
#include "base/result.hpp"
#include "driver/resources.hpp"
#include "ledger/ledger.hpp"
#include "shim/request.hpp"

namespace sandbox::shim {

// The claim's verb while a restart policy waits, and how long after the planned moment others may
// think that the shim is stuck. docs/formats/ledger.md.
inline constexpr std::string_view kRestartVerb = "restart";
inline constexpr std::uint64_t kRestartGraceNs = 60ULL * 1'000'000'000ULL;

// What one shim writes of its sandbox: ledger rows and the audit lines that belong to them, each
// pair in one commit. Every call that writes blocks for a sync (about a millisecond, seconds behind
// a stuck writer). conflict everywhere: somebody took the sandbox over; the shim must stop acting.
// One thread.
class Journal {
public:
    // `state_root` is the folder of ledger and audit log. Fails as Ledger::open does.
    [[nodiscard]] static Result<Journal> open(const std::string& state_root);

    // Walks through the commit of a launch and its end and takes it back: statements are compiled
    // and pages read by the time a client waits for them. Nothing is written, failure is no matter.
    void rehearse();

    // Requires: called once, before anything below.
    void bind(const LaunchRequest& request);

    // An effect was seen; kept in memory until the next commit.
    void observed(ledger::EntryKind kind, std::string identity);
    // For a kind that a sandbox has several of.
    void observed_name(ledger::EntryKind kind, std::string_view name, std::string identity);

    // Everything up to the open gate is in force: the launch is over, and its claim with it (a
    // claim has a deadline; what a living shim owns needs none).
    [[nodiscard]] Status running(const sys::ProcessIdentity& pid1, audit::Launched event);
    // The same and ended() in one commit, for a workload that was over before anybody could look.
    [[nodiscard]] Status ran(const sys::ProcessIdentity& pid1, audit::Launched event,
                             const ledger::Exit& exit,
                             const std::vector<audit::Violation>& violations);
    // The launch was given up before the gate; what was made is unwound afterwards.
    [[nodiscard]] Status failed(audit::LaunchFailed event);
    // Exactly once: a second call for the same generation is Code::conflict.
    [[nodiscard]] Status ended(const ledger::Exit& exit,
                               const std::vector<audit::Violation>& violations);

    // A session's leaf is about to be made.
    [[nodiscard]] Result<std::uint64_t> intend(ledger::EntryKind kind, std::string name);
    // Several in one commit; the first one's number, the rest follow.
    [[nodiscard]] Result<std::uint64_t> intend(std::span<const ledger::Intent> intents);
    // What intend() announced is there.
    [[nodiscard]] Status seen(std::uint64_t seq, const std::string& identity);
    // Audit lines that nothing waits for, in one commit.
    [[nodiscard]] Status write_down(std::vector<audit::Body> events);
    [[nodiscard]] Status session_opened(audit::SessionOpened event);
    [[nodiscard]] Status acted(std::string verb, std::string why);
    // Another process is the log worker of the profile's process now.
    [[nodiscard]] Status log_worker_replaced(const sys::ProcessIdentity& worker);
    [[nodiscard]] Status tell(audit::Body event);
    // Everything of the workload was seen to have stopped, or to go on again.
    [[nodiscard]] Status paused(std::string why);
    [[nodiscard]] Status resumed(std::string why);

    // Another plan for the sandbox that runs: its row and the event in one commit. Returns the path
    // of the plan file before.
    [[nodiscard]] Result<std::string> updated(const plan::ExecutionPlan& plan,
                                              std::string plan_path, audit::Updated event);

    // Entries of this generation that are not undone, without the shim's own.
    [[nodiscard]] Result<std::vector<ledger::Entry>> open_entries();
    // After unwinding: marks what is gone, closes the claim of a launch that never ran, rests in
    // `state`. With on_exit == remove the sandbox becomes `deleted`.
    [[nodiscard]] Status cleaned(const driver::Unwound& unwound, ledger::State state);
    // The same for a generation that another follows: what the shim needs meanwhile stays, and the
    // pause is a claim of ours. `due` is CLOCK_BOOTTIME.
    [[nodiscard]] Result<std::vector<ledger::Entry>> open_entries_of_run();
    [[nodiscard]] Status between(const driver::Unwound& unwound, ledger::State state,
                                 audit::Restarting event, std::int64_t due_ns);
    // Opens the next generation: its number, its intents (those of the last one, anew) and its
    // claim in one commit. `request` becomes the new generation's, and this journal with it.
    [[nodiscard]] Status begin_again(LaunchRequest& request);
    // The pause ended otherwise: the claim goes, the sandbox rests as it is.
    [[nodiscard]] Status give_up_restart();
    // When nobody waits any more: audit lines reach their file, a WAL grown long is emptied.
    [[nodiscard]] Status settle();

private:
    explicit Journal(ledger::Ledger ledger, std::string state_root)
        : ledger_(std::move(ledger)), state_root_(std::move(state_root))
    {
    }
    [[nodiscard]] Status write_running(ledger::Transaction& transaction,
                                       const sys::ProcessIdentity& pid1, audit::Launched event);
    [[nodiscard]] Status write_ended(ledger::Transaction& transaction, const ledger::Exit& exit,
                                     const std::vector<audit::Violation>& violations);
    [[nodiscard]] Status write_observed(ledger::Transaction& transaction);
    [[nodiscard]] Status append(ledger::Transaction& transaction, std::vector<audit::Body> bodies);
    [[nodiscard]] Status change_state(ledger::State state, std::string verb, std::string why);

    ledger::Ledger ledger_;
    std::string state_root_;
    SandboxId id_;
    SandboxName name_;
    std::uint32_t generation_ = 0;
    std::string operation_;
    bool launching_ = true;  // the claim of the launch is ours
    OnExit on_exit_ = OnExit::keep;
    std::vector<JournaledIntent> intents_;
    std::vector<std::pair<std::uint64_t, std::string>> pending_;
};

}  // namespace sandbox::shim
