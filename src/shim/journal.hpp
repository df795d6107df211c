// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "audit/audit.hpp"
#include "base/result.hpp"
#include "driver/resources.hpp"
#include "ledger/ledger.hpp"
#include "shim/request.hpp"

namespace sandbox::shim {

// What one shim writes of its sandbox: ledger rows and the audit lines that belong to them, each
// pair in one commit.
class Journal {
public:
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

    // Everything up to the open gate is in force: the launch is over, and its claim with it (a claim
    // has a deadline; what a living shim owns needs none).
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
    [[nodiscard]] Status session_opened(audit::SessionOpened event);
    [[nodiscard]] Status acted(std::string verb, std::string why);

    // Entries of this generation that are not undone, without the shim's own.
    [[nodiscard]] Result<std::vector<ledger::Entry>> open_entries();
    // After unwinding: marks what is gone, closes the claim of a launch that never ran, rests in
    // `state`. With on_exit == remove the sandbox becomes `deleted`.
    [[nodiscard]] Status cleaned(const driver::Unwound& unwound, ledger::State state);
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
