// SPDX-License-Identifier: Apache-2.0
#include "shim/keeper.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/failpoint.hpp"
#include "driver/resources.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::shim {

namespace {

namespace oci = driver::oci;

constexpr std::size_t kMostClients = 64;
constexpr int kMostMessages = 64;                 // of one session before others get a turn
constexpr Millis kDrainDeadline{5'000};           // after everything that could write was killed
constexpr std::size_t kMostInitPacket = 4U << 10; // wire::kMaxInitPacket

constexpr int kSignalBase = 128;   // a shell's convention, also docker's and podman's
constexpr int kTimeoutCode = 124;  // as timeout(1)

ledger::Exit exit_from(const wire::Exit& message)
{
    ledger::Exit exit;
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
        exit.code = message.value == ENOENT ? 127 : 126;
        exit.reason = ledger::ExitReason::exited;
        break;
    }
    return exit;
}

}  // namespace

struct Keeper::Client {
    std::uint64_t number = 0;
    sys::UniqueFd socket;
    Loop::Token watch = 0;
    bool waits = false;
    bool is_launcher = false;
};

Keeper::Keeper(Generation& generation, Journal& journal, sys::UniqueFd launcher)
    : generation_(generation), journal_(journal)
{
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
    auto folder = TRY(sys::open_dir(generation_.request.binding.run_dir.str()));
    listener_ = TRY(sys::unix_listen(folder.get(), kSocketName, sys::SocketType::seqpacket, 0600));
    failpoint("effect.shim-socket");
    door_ = TRY(sys::unix_listen(folder.get(), channel::kDoorName, sys::SocketType::stream, 0600));
    failpoint("effect.door-socket");
    TRY_VOID(sys::set_nonblocking(listener_.get()));
    TRY_VOID(sys::set_nonblocking(door_.get()));
    TRY(loop_.when_readable(listener_.get(), [this] { accept_client(); }));
    TRY(loop_.when_readable(door_.get(), [this] { accept_visitor(); }));
    init_watch_ = TRY(
        loop_.when_readable(generation_.launched->channel.get(), [this] { on_init_channel(); }));
    if (generation_.launched->runtime.fd() >= 0) {
        // crun ends once the container runs; nobody waits for it, but its zombie goes.
        TRY(loop_.when_readable(generation_.launched->runtime.fd(), [this] {
            static_cast<void>(waitpid(generation_.launched->runtime_pid, nullptr, WNOHANG));
            generation_.launched->runtime = sys::Pidfd(sys::UniqueFd(), 0);
        }));
    }
    if (generation_.service) {
        service_watch_ = TRY(
            loop_.when_readable(generation_.service->fd(), [this] { on_service(); }));
    }
    const auto& timeout = (*generation_.plan)->process.timeout;
    if (timeout) {
        TRY(loop_.after(*timeout, [this] {
            if (exit_) return;
            ending_ = Ending::timed_out;
            kill_everything();
        }));
    }
    for (const auto& [number, client] : clients_) {
        client->watch = TRY(
            loop_.when_readable(client->socket.get(), [this, n = number] { on_client(n); }));
        answer(*client, Running{generation_.workload_pid});
    }
    failpoint("open-for-business");
    return {};
}

void Keeper::answer(Client& client, const Reply& reply)
{
    const auto packet = encode(reply);
    if (!packet) return;
    // A client that does not read its answers loses them; it must not stop the loop.
    static_cast<void>(
        send(client.socket.get(), packet->data(), packet->size(), MSG_DONTWAIT | MSG_NOSIGNAL));
}

void Keeper::greet(const std::shared_ptr<Client>& client)
{
    answer(*client,
           Greeting{kGeneration, {"signal", "stop", "wait"}, generation_.request.binding.id.str()});
}

void Keeper::accept_client()
{
    auto socket = sys::accept_one(listener_.get());
    if (!socket) return;
    // The folder is 0700 root; the check is for a socket that was handed on.
    const auto peer = sys::peer_credentials(socket->get());
    if (clients_.size() >= kMostClients || !peer || (peer->uid != 0 && peer->uid != geteuid()))
        return;
    auto client = std::make_shared<Client>();
    client->socket = std::move(*socket);
    client->number = next_number_++;
    auto watch = loop_.when_readable(client->socket.get(),
                                     [this, number = client->number] { on_client(number); });
    if (!watch) return;
    client->watch = *watch;
    clients_.emplace(client->number, client);
    greet(client);
}

void Keeper::drop_client(std::uint64_t number)
{
    const auto it = clients_.find(number);
    if (it == clients_.end()) return;
    loop_.forget(it->second->watch);
    clients_.erase(it);
}

void Keeper::on_client(std::uint64_t number)
{
    const auto it = clients_.find(number);
    if (it == clients_.end()) return;
    const std::shared_ptr<Client> client = it->second;
    std::string packet(kMostPacketBytes + 1, '\0');
    const ssize_t count = recv(client->socket.get(), packet.data(), packet.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return drop_client(number);
    packet.resize(static_cast<std::size_t>(count));
    const auto request = decode_control_request(packet);
    if (!request) return answer(*client, Rejected{request.error().message()});
    serve(*client, *request);
}

void Keeper::serve(Client& client, const Request& request)
{
    if (std::holds_alternative<WaitRequest>(request)) {
        client.waits = true;
        if (exit_) answer(client, Ended{*exit_, exit_why_});
        return;
    }
    if (exit_) return answer(client, Rejected{"the workload has ended"});
    if (const auto* signal = std::get_if<SignalRequest>(&request)) {
        static_cast<void>(journal_.acted("kill", strsignal(signal->signal)));
        signal_workload(signal->signal);
    } else if (const auto* stop = std::get_if<StopRequest>(&request)) {
        begin_stop(Millis(static_cast<std::int64_t>(stop->timeout_ms)), "stop");
    }
    answer(client, Accepted{});
}

void Keeper::signal_workload(int signal)
{
    if (signal == SIGKILL || !generation_.service) {
        ending_ = Ending::killed;
        return kill_everything();
    }
    send_signal(signal);
}

// Never blocks: a sandbox-init that does not read its session has forfeited the gentle way.
void Keeper::send_signal(int signal)
{
    const auto frame = wire::encode(wire::Signal{static_cast<std::uint8_t>(signal)});
    const ssize_t sent = frame ? ::send(generation_.service->fd(), frame->data(), frame->size(),
                                        MSG_DONTWAIT | MSG_NOSIGNAL)
                               : -1;
    if (frame && sent == static_cast<ssize_t>(frame->size())) return;
    ending_ = Ending::killed;
    kill_everything();
}

void Keeper::begin_stop(Millis timeout, std::string why)
{
    failpoint("stop.before-commit");
    static_cast<void>(journal_.acted("stop", why));
    failpoint("stop.after-commit");
    if (ending_ == Ending::none) ending_ = Ending::stopping;
    if (!generation_.service) return kill_everything();
    send_signal(SIGTERM);
    failpoint("stop.signalled");
    const auto timer = loop_.after(timeout, [this] {
        if (exit_) return;
        ending_ = Ending::killed;
        kill_everything();
    });
    if (!timer) kill_everything();
}

// PID 1 ends when its channel closes, and the kernel ends its pid namespace with it.
void Keeper::kill_everything()
{
    if (init_watch_) loop_.forget(*init_watch_);
    init_watch_.reset();
    static_cast<void>(generation_.launched->init.send_signal(SIGKILL));
    failpoint("effect.killed");
    generation_.launched->channel.reset();
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
    if (packet && !packet->bytes.empty())
        return;  // diagnostics and refusals: nothing depends on them
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
    exit.reason = ending_ == Ending::none ? ledger::ExitReason::unknown
                                          : ledger::ExitReason::killed;
    if (!generation_.service && ending_ == Ending::stopping) {
        exit = {.code = 0, .signal = 0, .reason = ledger::ExitReason::exited, .oom_kills = 0};
    }
    end(exit);
}

void Keeper::end(ledger::Exit exit, std::string why)
{
    if (exit_) return;
    generation_.timing.mark("exit");
    if (service_watch_) loop_.forget(*service_watch_);
    const auto oom = oci::oom_kills(*generation_.plan, generation_.request.binding);
    exit.oom_kills = oom.value_or(0);
    const bool killed_hard = exit.signal == SIGKILL || exit.code == kSignalBase + SIGKILL;
    if (ending_ == Ending::timed_out) {
        exit.code = kTimeoutCode;
        exit.reason = ledger::ExitReason::timeout;
    } else if (exit.oom_kills > 0 && killed_hard && ending_ == Ending::none) {
        exit.reason = ledger::ExitReason::oom;
    } else if (ending_ == Ending::killed) {
        exit.reason = ledger::ExitReason::killed;
    }
    failpoint("ended.seen");
    exit_ = exit;
    exit_why_ = std::move(why);
    // Whatever the workload left running ends with it; nobody writes to the logs after that.
    if (generation_.launched->channel.valid()) kill_everything();
    await_log();
}

void Keeper::finish()
{
    over_ = true;
    loop_.stop();
}

void Keeper::await_log()
{
    if (!generation_.log) return finish();
    // Usually the pipes closed with the workload, and the worker has ended by now or is about to.
    const auto ended = loop_.when_readable(generation_.log->ended.get(), [this] { finish(); });
    const auto late = loop_.after(kDrainDeadline, [this] { finish(); });
    if (!ended || !late) finish();
}

Result<ledger::Exit> Keeper::keep(std::optional<audit::Launched> not_yet_running)
{
    while (!over_) loop_.run();
    generation_.timing.mark("drained");
    std::vector<audit::Violation> violations;
    if (exit_->oom_kills > 0) {
        violations.push_back(
            {"limit.memory", "OOM kills in the workload's cgroup", exit_->oom_kills});
    }
    if (not_yet_running) {
        TRY_VOID(journal_.ran(generation_.pid1, std::move(*not_yet_running), *exit_, violations));
    } else {
        TRY_VOID(journal_.ended(*exit_, violations));
    }
    generation_.timing.mark("exit-commit");
    for (const auto& [number, client] : clients_) {
        if (client->waits) answer(*client, Ended{*exit_, exit_why_});
    }
    generation_.timing.mark("told");
    clients_.clear();
    return *exit_;
}

}  // namespace sandbox::shim
