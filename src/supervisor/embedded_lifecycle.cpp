// SPDX-License-Identifier: Apache-2.0
#include "base/failpoint.hpp"
#include "supervisor/embedded.hpp"
#include "supervisor/events.hpp"
#include "supervisor/lifecycle.hpp"
#include "supervisor/shim_requests.hpp"
#include "supervisor/stats.hpp"

// The verbs between a first launch and removal.
namespace sandbox::supervisor {

Result<RunResult> EmbeddedService::create(const RunRequest& request)
{
    ledger::Ledger* ledger = TRY(this->ledger(ledger::OpenMode::create));
    const auto* plan = std::get_if<plan::ExecutionPlan>(&request.resolved);
    if (plan != nullptr) return create_resting(host_, *ledger, *plan, request);
    if (const auto* denials = std::get_if<std::vector<resolve::Denial>>(&request.resolved)) {
        TRY_VOID(record_denial(host_, *ledger, request.name, *denials));
    }
    return fail(Code::denied, "nothing to create: the profile was refused");
}

// What is left of an earlier run goes first: its shim's last steps, or what a dead one left.
Result<ledger::Sandbox> EmbeddedService::bring_to_rest(std::string_view reference)
{
    const Listed listed = TRY(find(reference));
    const ledger::Sandbox& sandbox = listed.sandbox;
    if (sandbox.state == ledger::State::deleted) {
        return fail(Code::not_found,
                    "no sandbox '" + std::string(reference) + "' (it was removed)");
    }
    if (listed.restart_due_ns) {
        return fail(Code::conflict, sandbox.name.str() + " is about to start again by itself");
    }
    // Never started: nothing of it can be left.
    if (!sandbox.shim) return sandbox;
    // Its last steps belong to it: to clean under it would undo what it is writing.
    if (listed.shim_alive) TRY_VOID(await_shim_end(sandbox));
    TRY(clean_dead(sandbox));
    return TRY(find(sandbox.id.str())).sandbox;
}

Result<RunResult> EmbeddedService::start(std::string_view reference, Attach attach,
                                         const Console& console)
{
    const Listed listed = TRY(find(reference));
    if (listed.shim_alive && ledger::is_active(listed.sandbox.state)) {
        if (attach == Attach::foreground) {
            return fail(Code::conflict, listed.sandbox.name.str() + " runs already: see attach");
        }
        RunResult running;
        // Idempotent for a service, as `systemctl start` is; a terminal has nothing to attach to
        // here.
        running.id = listed.sandbox.id;
        running.name = listed.sandbox.name;
        running.exit_status = 0;
        return running;
    }
    const ledger::Sandbox sandbox = TRY(bring_to_rest(listed.sandbox.id.str()));
    // The plan stored with the sandbox, resolved again: a digest proves identity, not permission.
    RunRequest request(TRY(stored_plan(host_, sandbox)));
    request.attach = attach;
    request.console = console;
    request.stdin_mode = console.in >= 0 ? Stdin::open : Stdin::closed;
    if (sandbox.remove_on_exit == ledger::RemoveOnExit::yes) request.keep = Keep::remove_on_exit;
    ledger_.reset();  // opened to read so far
    ledger::Ledger* ledger = TRY(this->ledger(ledger::OpenMode::read_write));
    EarlyShim early{sandbox.id, TRY(start_shim(host_, sandbox.id))};
    return launch(host_, *ledger, std::move(early), std::get<plan::ExecutionPlan>(request.resolved),
                  request, &sandbox);
}

Status EmbeddedService::restart(std::string_view reference,
                                std::optional<std::chrono::milliseconds> timeout)
{
    const Listed listed = TRY(find(reference));
    const std::string id = listed.sandbox.id.str();
    // Stopping it would remove it, and there would be nothing to start.
    if (listed.sandbox.remove_on_exit == ledger::RemoveOnExit::yes) {
        return fail(Code::conflict, listed.sandbox.name.str() +
                                        " goes when it ends (--rm): stop it and run it again");
    }
    if (listed.shim_alive) TRY_VOID(stop(id, timeout));
    failpoint("restart.stopped");
    const RunResult started = TRY(start(id, Attach::detached, {}));
    if (started.why.empty()) return {};
    return fail(Code::unavailable, "restart " + started.name.str() + ": " + started.why);
}

// A running or paused sandbox, and the connection to its shim.
Result<EmbeddedService::Reached> EmbeddedService::reach(std::string_view reference)
{
    Listed listed = TRY(find(reference));
    const ledger::State state = listed.sandbox.state;
    if (!ledger::is_active(state) || ledger::rests(listed.sandbox)) {
        return fail(does_not_run(listed.sandbox));
    }
    if (!listed.shim_alive) return fail(dead_shim(listed.sandbox));
    auto connection = TRY(reach_shim(listed.sandbox.id));
    // It may have come to run only now; its state, and above all its generation, are those of now.
    listed = TRY(find(listed.sandbox.id.str()));
    return Reached{std::move(listed.sandbox), std::move(connection)};
}

Status EmbeddedService::pause(std::string_view reference)
{
    auto reached = TRY(reach(reference));
    failpoint("pause.before-request");
    // Asked of the row, not of the shim, for the better message; the shim checks again.
    if (reached.sandbox.state == ledger::State::paused) {
        return fail(Code::conflict, reached.sandbox.name.str() + " is paused already");
    }
    // With the generation: a restart in between must not be paused by mistake.
    return expect_accepted(reached.connection, shim::PauseRequest{reached.sandbox.generation});
}

Status EmbeddedService::resume(std::string_view reference)
{
    auto reached = TRY(reach(reference));
    failpoint("resume.before-request");
    if (reached.sandbox.state != ledger::State::paused) {
        return fail(Code::conflict, reached.sandbox.name.str() + " is not paused");
    }
    return expect_accepted(reached.connection, shim::ResumeRequest{reached.sandbox.generation});
}

Status EmbeddedService::touch(std::string_view reference)
{
    auto reached = TRY(reach(reference));
    return expect_accepted(reached.connection, shim::TouchRequest{});
}

Result<Stats> EmbeddedService::stats(std::string_view reference)
{
    const Listed listed = TRY(find(reference));
    if (!listed.shim_alive || !ledger::is_active(listed.sandbox.state)) {
        return fail(does_not_run(listed.sandbox));
    }
    ledger::Ledger* ledger = TRY(this->ledger(ledger::OpenMode::read_only));
    // Where it was launched, whatever the configuration says today.
    // The entry has the path of the cgroup as it was made.
    for (const ledger::Entry& entry : TRY(ledger->entries(listed.sandbox.id))) {
        if (entry.kind != ledger::EntryKind::cgroup_workload ||
            entry.state == ledger::EntryState::undone) {
            continue;
        }
        return read_stats(listed.sandbox, entry.name);
    }
    return fail(does_not_run(listed.sandbox));
}

Status EmbeddedService::events(const EventQuery& query, const EventSink& sink)
{
    // Who follows waits for the first sandbox too.
    const auto mode = query.follow ? ledger::OpenMode::create : ledger::OpenMode::read_only;
    auto ledger = this->ledger(mode);
    if (!ledger && ledger.error().code() == Code::not_found) return {};
    return read_events(host_.paths.state, *TRY(std::move(ledger)), query, sink);
}

}  // namespace sandbox::supervisor
