// SPDX-License-Identifier: Apache-2.0
#include <poll.h>

#include "base/failpoint.hpp"
#include "driver/rootless.hpp"
#include "shim/guest_link.hpp"
#include "supervisor/attach.hpp"
#include "supervisor/embedded.hpp"
#include "supervisor/exec.hpp"

// The calls about sessions of the service in this process.
namespace sandbox::supervisor {

namespace {

// No state below tells "not yet" from "never": after this the launch counts as slow, and the caller
// hears its state.
constexpr Millis kComesUp{3'000};  // a launch takes some 50 ms
// The reply deadline of docs/protocol.md.
constexpr Millis kFinalWord{10'000};
constexpr int kGlanceMs = 2;

Error not_running(const ledger::Sandbox& sandbox)
{
    const std::string name = sandbox.name.str();
    if (sandbox.state == ledger::State::paused)
        return {Code::conflict, name + " is paused: run 'sandboxctl resume " + name + "' first"};
    if (ledger::is_active(sandbox.state) && !ledger::rests(sandbox))
        return {Code::conflict, name + " is still being launched (state " +
                                    std::string(ledger::to_string(sandbox.state)) + ")"};
    return {Code::conflict,
            name + " does not run (state " + std::string(ledger::to_string(sandbox.state)) + ")"};
}

Status expect_plan_of(const ledger::Sandbox& sandbox, const std::string& wanted)
{
    // An empty digest asks for nothing.
    if (wanted.empty() || sandbox.plan_digest == wanted) return {};
    return fail(Code::conflict, sandbox.name.str() + " runs plan " + sandbox.plan_digest +
                                    ", not the expected " + wanted);
}

}  // namespace

// A sandbox in which a session can be opened. Who has seen output of a fresh one may come before
// its launch is over: a moment is waited for that.
Result<Target> EmbeddedService::find_target(std::string_view reference)
{
    const auto deadline = sys::Deadline::after(kComesUp);
    Listed listed = TRY(find(reference));
    // Polled: no lock is held while a launch is under way, and it is over in some fifty looks.
    while (ledger::is_active(listed.sandbox.state) &&
           listed.sandbox.state < ledger::State::running && listed.shim_alive &&
           !deadline.passed()) {
        poll(nullptr, 0, kGlanceMs);
        listed = TRY(find(listed.sandbox.id.str()));
    }
    if (listed.sandbox.state != ledger::State::running) return fail(not_running(listed.sandbox));
    if (!listed.shim_alive)
        return fail(Code::unavailable,
                    listed.sandbox.name.str() + " has no living shim: run 'sandboxctl reconcile'");
    const SandboxId id = listed.sandbox.id;
    // The same values as at its launch, put together anew: bindings are not stored.
    driver::Binding binding;
    binding.id = id;
    binding.name = listed.sandbox.name;
    binding.generation = listed.sandbox.generation;
    binding.id_base = listed.sandbox.ids ? listed.sandbox.ids->first : 0;
    binding.run_dir = HostPath(host_.paths.run_of(id));
    binding.state_dir = HostPath(host_.paths.state_of(id));
    binding.cgroup = host_.cgroup_parent() + "/" + id.str();
    // By id: the row above, not whatever has the name by now.
    auto plan = TRY(plan_of(id.str()));
    // An ordinary user's may have been launched where another cgroup was delegated.
    if (driver::is_rootless(plan.content())) {
        ledger::Ledger* ledger = TRY(this->ledger(ledger::OpenMode::read_only));
        for (const ledger::Entry& entry : TRY(ledger->entries(id)))
            if (entry.kind == ledger::EntryKind::cgroup_root &&
                entry.generation == listed.sandbox.generation)
                binding.cgroup = entry.name;
    }
    return Target{std::move(listed.sandbox), std::move(plan), std::move(binding)};
}

Result<SessionResult> EmbeddedService::exec(const ExecRequest& request)
{
    const Target target = TRY(find_target(request.reference));
    TRY_VOID(expect_plan_of(target.sandbox, request.expect_plan));
    const auto unchanged = [&]() -> Status {
        // Without an expected plan a sandbox that was started anew is as good: exec by name means
        // what runs.
        if (request.expect_plan.empty()) return {};
        // Between our look and the gate it may have been replaced.
        const Listed now = TRY(find(target.sandbox.id.str()));
        if (now.sandbox.generation != target.sandbox.generation)
            return fail(Code::conflict, target.sandbox.name.str() + " was started anew meanwhile");
        return expect_plan_of(now.sandbox, request.expect_plan);
    };
    if (request.terminal || request.attach == Attach::detached) {
        auto shim = TRY(reach_shim(target.sandbox.id));
        // Once more after the shim answered: the connection belongs to one generation.
        TRY_VOID(unchanged());
        return exec_through_shim(target, request, std::move(shim));
    }
    const auto deadline = sys::Deadline::after(kComesUp);
    while (true) {
        auto result = exec_through_door(target, request, unchanged);
        // The door opens a moment after the state is written.
        // Only these two: any other failure may come after the session began, and to begin it twice
        // could run a command twice.
        const bool no_door = !result && (result.error().errnum() == ENOENT ||
                                         result.error().errnum() == ECONNREFUSED);
        if (!no_door || deadline.passed()) return result;
        const Listed now = TRY(find(target.sandbox.id.str()));
        if (now.sandbox.state != ledger::State::running || !now.shim_alive)
            return fail(not_running(now.sandbox));
        poll(nullptr, 0, kGlanceMs);
    }
}

Result<SessionResult> EmbeddedService::attach(const AttachRequest& request)
{
    const Listed listed = TRY(find(request.reference));
    if (listed.sandbox.state == ledger::State::paused || !ledger::is_active(listed.sandbox.state))
        return fail(not_running(listed.sandbox));
    auto shim = TRY(reach_shim(listed.sandbox.id));
    const bool service = request.session.empty() || request.session == shim::kServiceSession;
    shim::AttachSession message;
    message.session = service ? std::string(shim::kServiceSession) : request.session;
    // The shim counts a terminal's bytes; -1, its default, stands for where the last attachment
    // ended.
    if (request.out_offset) message.from = static_cast<std::int64_t>(*request.out_offset);
    message.rows = request.console.rows;
    message.cols = request.console.cols;
    TRY_VOID(shim.send(message));
    auto answer = TRY(await_session(shim));
    const auto* opened = std::get_if<shim::SessionOpen>(&answer.reply);
    if (opened == nullptr) return fail(Code::corrupt, "the shim answered with another reply");
    SessionResult result;
    result.session = opened->session;
    if (opened->terminal) {
        result = TRY(attend_terminal(std::move(answer.stream), request.console, opened->offset,
                                     std::move(result)));
    } else {
        // Two positions, because the log mixes two streams that are counted apart.
        LogPosition from{request.out_offset, request.err_offset};
        // Of a detached session everything; of the main process, as others do, what comes now.
        if (from.out || from.err || !service) from = {from.out.value_or(0), from.err.value_or(0)};
        result = TRY(attend_log(std::move(answer.stream), opened->logs, request.console, from,
                                std::move(result)));
    }
    if (!service || !result.exit) return result;
    // The shim knows more than the stream can say: OOM, time-out, killed.
    // The exit of the stream is true, only poorer: a shim that is gone by now changes nothing.
    if (!shim.send(shim::WaitRequest{})) return result;
    // Until it hangs up: by then the end is in the ledger too.
    while (true) {
        const auto reply = shim.receive(sys::Deadline::after(kFinalWord));
        if (!reply || !*reply) break;
        if (const auto* ended = std::get_if<shim::Ended>(&**reply)) {
            result.exit = ended->exit;
            result.exit_status = ended->exit.code;
            if (!ended->why.empty()) result.why = ended->why;
        }
    }
    return result;
}

Result<std::vector<SessionInfo>> EmbeddedService::sessions(std::string_view reference)
{
    const Listed listed = TRY(find(reference));
    if (!ledger::is_active(listed.sandbox.state)) return fail(not_running(listed.sandbox));
    auto shim = TRY(reach_shim(listed.sandbox.id));
    std::vector<SessionInfo> list;
    // Pages, because a packet is bounded: by number, so that sessions which come or go between two
    // pages are neither shown twice nor missed.
    std::uint32_t after = 0;
    while (true) {
        TRY_VOID(shim.send(shim::ListSessions{after}));
        const auto reply = TRY(shim.receive(sys::Deadline::after(kFinalWord)));
        if (!reply) return fail(Code::unavailable, "the shim ended before it answered");
        if (const auto* rejected = std::get_if<shim::Rejected>(&*reply))
            return fail(Code::conflict, rejected->why);
        const auto* rows = std::get_if<shim::SessionList>(&*reply);
        if (rows == nullptr) return fail(Code::corrupt, "the shim answered with another reply");
        for (const shim::SessionRow& row : rows->rows) {
            SessionInfo info;
            info.session = "s" + std::to_string(row.number);
            info.argv = row.argv;
            info.terminal = row.terminal;
            info.running = !row.exit;
            info.attached = row.attached;
            info.pid = row.pid;
            info.started = row.started;
            info.out_offset = row.bytes;
            info.exit = row.exit;
            list.push_back(std::move(info));
            after = row.number;
        }
        // An empty page with `more` would turn for ever.
        if (!rows->more || rows->rows.empty()) return list;
    }
}

Status EmbeddedService::signal_session(std::string_view reference, std::string_view session,
                                       int signal)
{
    const Listed listed = TRY(find(reference));
    if (!ledger::is_active(listed.sandbox.state)) return fail(not_running(listed.sandbox));
    auto shim = TRY(reach_shim(listed.sandbox.id));
    TRY_VOID(shim.send(shim::SignalSession{std::string(session), signal}));
    const auto reply = TRY(shim.receive(sys::Deadline::after(kFinalWord)));
    if (!reply) return fail(Code::unavailable, "the shim ended before it answered");
    if (const auto* rejected = std::get_if<shim::Rejected>(&*reply))
        return fail(Code::conflict, rejected->why);
    return {};
}

}  // namespace sandbox::supervisor
