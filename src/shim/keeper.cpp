// SPDX-License-Identifier: Apache-2.0
#include "shim/keeper.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/diagnostic.hpp"
#include "base/failpoint.hpp"
#include "driver/resources.hpp"
#include "shim/freezer.hpp"
#include "shim/keeper_client.hpp"
#include "shim/reception.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::shim {

namespace {

constexpr int kMostMessages = 64;                 // of one session before others get a turn
constexpr std::size_t kMostInitPacket = 4U << 10; // wire::kMaxInitPacket

constexpr int kNoStatus = 255;  // what is reported of an end that PID 1 lied about
constexpr int kSignalBase = 128;   // a shell's convention, also docker's and podman's
constexpr int kTimeoutCode = 124;  // as timeout(1)

// Shells and container runtimes agree on these numbers; design.md calls them a contract.
ledger::Exit exit_from(const wire::Exit& message)
{
    ledger::Exit exit;
    if (!wire::is_exit_value(message.outcome, message.value)) {
        exit.code = kNoStatus;
        exit.reason = ledger::ExitReason::unknown;
        return exit;
    }
    switch (message.outcome) {
    case wire::ExitOutcome::exited:
        exit.code = message.value & 0xFF;
        exit.reason = ledger::ExitReason::exited;
        break;
    case wire::ExitOutcome::signaled:
    case wire::ExitOutcome::timed_out:
        exit.signal = message.value;
        exit.code = kSignalBase + message.value;
        exit.reason = ledger::ExitReason::signal;
        break;
    case wire::ExitOutcome::failed_to_start:
        // ENOENT means 127, "not found"; everything else 126, "not executable" (POSIX shell,
        // 2.8.2).
        exit.code = message.value == ENOENT ? 127 : 126;
        exit.reason = ledger::ExitReason::exited;
        break;
    }
    return exit;
}

// What an attached client is told, in the words of the guest protocol.
wire::Exit wire_exit(const ledger::Exit& exit)
{
    if (exit.reason == ledger::ExitReason::timeout) return {wire::ExitOutcome::timed_out, SIGKILL};
    if (exit.signal != 0) return {wire::ExitOutcome::signaled, exit.signal};
    return {wire::ExitOutcome::exited, exit.code};
}

}  // namespace

Keeper::Keeper(Generation& generation, Journal& journal, sys::UniqueFd launcher,
               sys::UniqueFd listener, sys::Deadline ttl)
    : generation_(generation), journal_(journal), listener_(std::move(listener)), ttl_(ttl)
{
    // None when the client went away before the launch was done.
    if (!launcher.valid()) return;
    auto client = std::make_shared<Client>();
    client->socket = std::move(launcher);
    client->waits = true;
    client->is_launcher = true;
    client->number = next_number_++;
    clients_.emplace(client->number, client);
}

Keeper::~Keeper() = default;

Status Keeper::open_for_business()
{
    const std::string run_dir = generation_.request.binding.run_dir.str();
    // In this order: by the time the launcher hears "running", shim.sock, door and sessions are
    // there.
    auto folder = TRY(sys::open_dir(run_dir));
    // Kept from generation to generation: a client that connects between two of them is not turned
    // away.
    if (!listener_.valid()) listener_ = TRY(listen_for_clients(run_dir));
    failpoint("effect.shim-socket");
    door_ = TRY(sys::unix_listen(folder.get(), channel::kDoorName, sys::SocketType::stream, 0600));
    failpoint("effect.door-socket");
    TRY_VOID(sys::set_nonblocking(door_.get()));
    TRY(loop_.when_readable(listener_.get(), [this] { accept_client(); }));
    TRY(loop_.when_readable(door_.get(), [this] { accept_visitor(); }));
    init_watch_ = TRY(
        loop_.when_readable(generation_.launched->channel.get(), [this] { on_init_channel(); }));
    for (driver::Launched::Helper& helper : generation_.launched->helpers) {
        // crun ends once the container runs; nobody waits for it, but its zombie goes.
        // Its pidfd is readable once it ended, pidfd_open(2).
        TRY(loop_.when_readable(helper.process.fd(), [this, &helper] {
            // That one and no other: a killed log worker's end is told by its own status.
            static_cast<void>(helper.process.wait_exit(sys::Deadline::after(Millis{0})));
            helper.process = sys::Pidfd(sys::UniqueFd(), 0);
            if (helper.vital == driver::Vital::yes) on_init_gone();
        }));
    }
    // A service's stream; an idle sandbox has none, and ends with its channel.
    if (generation_.service) {
        service_watch_ = TRY(
            loop_.when_readable(generation_.service->fd(), [this] { on_service(); }));
    }
    TRY_VOID(watch_log());
    TRY_VOID(watch_console());
    TRY_VOID(start_watching());
    sessions_.emplace(generation_, journal_, loop_, [this] {
        if (clocks_) clocks_->touch();
    });
    if ((*generation_.plan)->microvm) {
        sessions_->ask_guest_kills(
            [this] { return guest_events_ ? guest_events_->count_oom_kills() : 0; });
        sessions_->signal_through([this](const std::string& session, int signal) {
            return signal_in_guest(session, signal);
        });
    }
    TRY_VOID(sessions_->begin_service());
    // Last: the launcher may act on the answer at once.
    for (const auto& [number, client] : clients_) {
        client->watch = TRY(
            loop_.when_readable(client->socket.get(), [this, n = number] { on_client(n); }));
        answer(*client, Running{generation_.workload_pid});
    }
    failpoint("open-for-business");
    return {};
}

// PID 1 ends when its channel closes, and the kernel ends its pid namespace with it.
void Keeper::kill_everything()
{
    // First: our own killing must not look like a channel that PID 1 closed.
    if (init_watch_) loop_.forget(*init_watch_);
    init_watch_.reset();
    static_cast<void>(generation_.launched->init.send_signal(SIGKILL));
    failpoint("effect.killed");
    // Even if the signal could not be sent: PID 1 ends when its channel closes.
    generation_.launched->channel.reset();
    // What is frozen does not die before it goes on (cgroup v1).
    if (paused_) static_cast<void>(thaw_workload(generation_.request.binding.cgroup));
    // With a service the session's end brings us on; an idle sandbox has nothing else to wait for.
    if (!generation_.service) on_init_gone();
}

bool Keeper::take_message(const wire::SessionMessage& message)
{
    const auto* exit = std::get_if<wire::Exit>(&message);
    if (exit == nullptr) return false;
    std::string why;
    if (exit->outcome == wire::ExitOutcome::failed_to_start) {
        why = "cannot execute " + (*generation_.plan)->process.argv.front() + ": " +
              strerror(exit->value);
    }
    end(exit_from(*exit), std::move(why));
    return true;
}

// Only the service's stream is looked at: nothing else is watched yet.
bool Keeper::ended_at_once(Millis patience)
{
    if (!generation_.service) return false;
    const auto deadline = sys::Deadline::after(patience);
    while (!exit_) {
        auto message = generation_.service->receive(deadline);
        // A broken or closed stream is seen again, and judged, by the loop.
        if (!message || !*message) return false;
        if (take_message(**message)) return true;
    }
    return true;
}

void Keeper::on_service()
{
    for (int handled = 0; !exit_; ++handled) {
        if (handled == kMostMessages) {
            // A flood must not keep timers and clients from their turn.
            // By a timer, because level-triggered readiness would come back at once, before the
            // others.
            if (!loop_.after(Millis{1}, [this] { on_service(); })) break;
            return;
        }
        auto message = generation_.service->receive(sys::Deadline::after(Millis{0}));
        if (!message && message.error().code() == Code::deadline_exceeded) return;
        if (!message || !*message) break;  // a broken peer is a lost one
        if (take_message(**message)) return;
    }
    on_init_gone();
}

void Keeper::on_init_channel()
{
    auto packet = sys::recv_fds(generation_.launched->channel.get(), kMostInitPacket, 0);
    if (packet && !packet->bytes.empty()) {
        const auto message = wire::decode_packet(wire::Direction::to_host,
                                                 std::as_bytes(std::span(packet->bytes)));
        if (message && std::holds_alternative<wire::GuestFaulty>(*message))
            return end_as_faulty("guest.protocol",
                                 "the guest broke the protocol: " +
                                     escaped(std::get<wire::GuestFaulty>(*message).detail));
        if (message && sessions_) sessions_->told(*message);
        if (message && std::holds_alternative<wire::SessionEnded>(*message))
            on_session_over(std::get<wire::SessionEnded>(*message));
        return;  // diagnostics: nothing depends on them
    }
    // EOF or an error: PID 1 has closed it, or is gone.
    if (init_watch_) loop_.forget(*init_watch_);
    init_watch_.reset();
    if (!generation_.service) on_init_gone();
}

// PID 1 is gone and the session with it: no exit status was reported.
void Keeper::on_init_gone()
{
    ledger::Exit exit;
    exit.signal = SIGKILL;
    exit.code = kSignalBase + SIGKILL;
    // Nobody asked for it: the kernel or the host's owner killed PID 1, and we cannot know which.
    exit.reason = ending_ == Ending::none ? ledger::ExitReason::unknown
                                          : ledger::ExitReason::killed;  // or faulty, see end()
    // An idle sandbox that was stopped has ended well; there is no process to have a status.
    if (!generation_.service && ending_ == Ending::stopping) {
        exit = {.code = 0, .signal = 0, .reason = ledger::ExitReason::exited, .oom_kills = 0};
    }
    end(exit);
}

void Keeper::end(ledger::Exit exit, std::string why)
{
    // The first end stands: a stop, a time-out and the workload's own exit may come together.
    if (exit_) return;
    generation_.timing.mark("exit");
    if (service_watch_) loop_.forget(*service_watch_);
    // Read before the cgroups are removed; the counters go with them.
    const auto oom = driver::oom_kills(*generation_.plan, generation_.request.binding);
    // A shell inside may have turned the SIGKILL of its child into 137.
    const bool killed_hard = exit.signal == SIGKILL || exit.code == kSignalBase + SIGKILL;
    exit.oom_kills = oom.value_or(0) + guest_oom_kills();
    if (ending_ == Ending::timed_out) {
        exit.code = kTimeoutCode;
        exit.reason = ledger::ExitReason::timeout;
    } else if (exit.oom_kills > 0 && killed_hard && ending_ == Ending::none) {
        // The kernel's kill explains the signal only if nobody else sent one.
        exit.reason = ledger::ExitReason::oom;
    } else if (ending_ == Ending::killed) {
        exit.reason = ledger::ExitReason::killed;
    } else if (ending_ == Ending::faulty) {
        exit.reason = ledger::ExitReason::faulty;
    }
    failpoint("ended.seen");
    exit_ = exit;
    if (!why.empty()) exit_why_ = std::move(why);
    // Clocks and checks first: none of them may act on a sandbox that has ended.
    if (health_) health_->stop();
    if (clocks_) clocks_->stop();
    if (guest_events_) guest_events_->stop();
    // Whatever the workload left running ends with it; nobody writes to the logs after that.
    const bool by_force = ending_ != Ending::none && ending_ != Ending::stopping;
    if (generation_.launched->channel.valid() && (by_force || !power_off_guest()))
        kill_everything();
    // After the kill: attached clients then read all output there is before EXIT.
    if (sessions_) sessions_->service_ended(wire_exit(exit));
    await_log();
}

Result<ledger::Exit> Keeper::keep(std::optional<audit::Launched> not_yet_running)
{
    while (!over_) loop_.run();
    generation_.timing.mark("drained");
    std::vector<audit::Violation> violations;
    // What the watch has told while it ran is not told twice.
    std::uint64_t told = oom_ ? oom_->told() : 0;
    if (guest_events_) told += guest_events_->oom_kills();
    if (exit_->oom_kills > told) {
        violations.push_back({"limit.memory", kOomDetail, exit_->oom_kills - told});
    }
    // Before the commit: whoever reads the exit finds the reason, too.
    save_end();
    save_console();
    if (sessions_) static_cast<void>(sessions_->settle());
    if (not_yet_running) {
        TRY_VOID(journal_.ran(generation_.pid1, std::move(*not_yet_running), *exit_, violations));
    } else {
        TRY_VOID(journal_.ended(*exit_, violations));
    }
    generation_.timing.mark("exit-commit");
    // After the commit: a client that hears "ended" may look into the ledger at once.
    for (const auto& [number, client] : clients_) {
        if (client->waits) answer(*client, Ended{*exit_, exit_why_});
    }
    generation_.timing.mark("told");
    // The launcher's connection closes with it; the shim is only cleaning up from here on.
    clients_.clear();
    await_power_off();
    return *exit_;
}

}  // namespace sandbox::shim
