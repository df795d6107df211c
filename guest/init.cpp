// SPDX-License-Identifier: Apache-2.0
#include "guest/init.hpp"

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <limits>

#include "sys/net/unix.hpp"
#include "sys/process.hpp"

namespace sandbox::guest {
namespace {

bool is_pid_one() { return ::getpid() == 1; }

}  // namespace

int Init::run()
{
    if (const auto begun = begin(); !begun) {
        log(begun.error().message());
        return 1;
    }
    while (!ended_) turn();
    // As PID 1 our end is the end of all; elsewhere (tests) what was started is ended by hand.
    signal_all(SIGKILL);
    return 0;
}

Status Init::begin()
{
    // A workload of the same user must not read our memory through /proc.
    if (::prctl(PR_SET_DUMPABLE, 0) != 0) return fail_errno("prctl", "PR_SET_DUMPABLE");
    // Orphans come to us also where we are not PID 1.
    TRY_VOID(sys::become_subreaper());
    ::signal(SIGPIPE, SIG_IGN);
    sigset_t child;
    ::sigemptyset(&child);
    ::sigaddset(&child, SIGCHLD);
    if (::sigprocmask(SIG_SETMASK, &child, nullptr) != 0) return fail_errno("sigprocmask");
    signals_.reset(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_) return fail_errno("signalfd");
    const auto up = TRY(wire::encode_packet(
        wire::InitUp{wire::kProtocolVersion, static_cast<std::uint32_t>(::getpid())}));
    if (::send(channel_.get(), up.data(), up.size(), MSG_NOSIGNAL) < 0)
        return fail_errno("send", "INIT_UP");
    return {};
}

void Init::turn()
{
    poller_.clear();
    at_channel_ = poller_.watch(channel_.get(),
                                static_cast<short>(POLLIN | (told_.empty() ? 0 : POLLOUT)));
    at_signals_ = poller_.watch(signals_.get(), POLLIN);
    if (control_) control_->watch(poller_);
    if (events_) events_->watch(poller_);
    for (const auto& session : sessions_) session->watch(poller_);
    if (!poller_.wait(timeout(now_ms()))) {
        ended_ = true;  // poll fails on broken arguments only: better gone than spinning
        return;
    }
    if (poller_.ready(at_signals_) != 0) reap();
    const std::int64_t now = now_ms();
    if (control_) {
        control_->handle(poller_);
        if (control_->done()) control_.reset();
    }
    // After the reaping: a session whose leader ended drains and reports in this very turn.
    for (const auto& session : sessions_) {
        session->handle(poller_, now);
        if (const auto note = session->take_note()) log(session->name() + ": " + *note);
        if (const auto opened = session->take_opened()) tell(*opened);
        if (const auto over = session->take_ended()) tell(*over);
    }
    announce_service();
    std::erase_if(sessions_, [](const auto& session) { return session->done(); });
    if (events_) {
        events_->handle(poller_, now);
        if (events_->done()) events_.reset();
    }
    flush_told();
    // Last: a stream taken now is watched from the next turn on.
    if ((poller_.ready(at_channel_) & ~POLLOUT) != 0) take_packet();
    if (state_.poweroff && kill_at_ == kNever) begin_stop(now);
    if (kill_at_ != kNever && stopped(now)) ended_ = true;
}

int Init::timeout(std::int64_t now) const
{
    std::int64_t first = kill_at_;
    for (const auto& session : sessions_) first = std::min(first, session->deadline());
    if (events_) first = std::min(first, events_->deadline());
    if (first == kNever) return -1;
    return static_cast<int>(
        std::clamp<std::int64_t>(first - now, 0, std::numeric_limits<int>::max()));
}

void Init::take_packet()
{
    auto packet = sys::recv_fds(channel_.get(), wire::kMaxInitPacket, sys::kMaxFds);
    if (!packet) {
        if (packet.error().errnum() == EAGAIN || packet.error().errnum() == EINTR) return;
        if (packet.error().code() == Code::corrupt) return log("a packet was not taken");
        ended_ = true;
        return;
    }
    // The shim is gone: law 6, so are we.
    if (packet->bytes.empty()) {
        ended_ = true;
        return;
    }
    const auto message = wire::decode_packet(wire::Direction::to_guest,
                                             std::as_bytes(std::span(packet->bytes)));
    if (!message) return log(std::string("a packet was not taken: ") + message.error().what);
    if (const auto* pass = std::get_if<wire::Pass>(&*message))
        accept(*pass, std::move(packet->fds));
}

void Init::accept(const wire::Pass& pass, std::vector<sys::UniqueFd> fds)
{
    if (fds.size() != 1U + pass.leaf_count) return log("PASS with another number of descriptors");
    sys::UniqueFd stream = std::move(fds.front());
    fds.erase(fds.begin());
    if (!sys::set_nonblocking(stream.get())) return log("PASS without a stream");
    switch (static_cast<wire::Port>(pass.port)) {
    case wire::Port::control:
            // One at a time; a new one replaces the old.
        control_ = std::make_unique<Control>(std::move(stream), boot_, state_);
        return;
    case wire::Port::session:
        if (sessions_.size() >= boot_.max_sessions || kill_at_ != kNever)
            return refuse_stream(std::move(stream), pass, wire::WireError::busy,
                                 "session limit reached, or stopping");
        sessions_.push_back(std::make_unique<Session>(std::move(stream), pass.session, pass.leaf,
                                                      std::move(fds), boot_, state_.gate));
        return;
    case wire::Port::events:
        // Ours to speak on first, and only with the nonce. A new stream replaces the old.
        if (!state_.gate.provisioned)
            return refuse_stream(std::move(stream), pass, wire::WireError::not_provisioned,
                                 "events before PROVISION");
        events_ = std::make_unique<Events>(std::move(stream), state_.secrets.event_nonce(),
                                           event_sequence_, boot_.heartbeat_ms);
        announced_ = wire::ServiceState::not_started;
        return;
    default:
        refuse_stream(std::move(stream), pass, wire::WireError::not_ready,
                      "nothing listens on this port");
    }
}

void Init::announce_service()
{
    for (const auto& session : sessions_) {
        if (!session->is_service() || session->leader() == 0) continue;
        state_.service = session->is_running() ? wire::ServiceState::running
                                               : wire::ServiceState::starting;
    }
    if (state_.service == announced_ || !events_) return;
    announced_ = state_.service;
    events_->tell_service(state_.service, state_.service_exit);
}

void Init::refuse_stream(sys::UniqueFd stream, const wire::Pass& pass, wire::WireError error,
                         const char* what)
{
    Outbox out;
    out.send(wire::ErrorMessage{static_cast<std::uint16_t>(error), what});
    out.flush_to_socket(stream.get());
    tell(wire::PassRefused{pass.session, static_cast<std::uint16_t>(error)});
}

template <class M>
void Init::tell(const M& message)
{
    if (auto packet = wire::encode_packet(message)) told_.push_back(std::move(*packet));
}

// In order and never waiting: two packets a session at most, and no more sessions than the limit.
void Init::flush_told()
{
    while (!told_.empty()) {
        const wire::ByteVector& packet = told_.front();
        const ssize_t sent = ::send(channel_.get(), packet.data(), packet.size(),
                                    MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
        told_.pop_front();
    }
}

void Init::reap()
{
    // Signals merge: the queue is emptied first, then everybody who ended is asked for.
    std::array<signalfd_siginfo, 16> queue;
    while (::read(signals_.get(), queue.data(), sizeof queue) > 0) {}
    for (;;) {
        const auto reaped = sys::reap_any();
        if (!reaped || !*reaped) return;
        for (const auto& session : sessions_) {
            if (session->leader() != (*reaped)->pid) continue;
            session->leader_exited((*reaped)->status);
            if (!session->is_service()) continue;
            state_.service = wire::ServiceState::exited;
            const sys::ExitStatus& status = (*reaped)->status;
            state_.service_exit = status.signal != 0 ? -status.signal : status.code;
        }
    }
}

void Init::log(std::string_view text)
{
    // Never waits: a shim that does not listen loses a line, not the sandbox.
    const auto packet = wire::encode_packet(wire::InitLog{std::string(text.substr(0, 1024))});
    if (packet) ::send(channel_.get(), packet->data(), packet->size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Init::begin_stop(std::int64_t now)
{
    kill_at_ = now + boot_.stop_grace_ms;
    signal_all(boot_.stop_grace_ms > 0 ? SIGTERM : SIGKILL);
}

bool Init::stopped(std::int64_t now) const
{
    if (now >= kill_at_) return true;
    return std::ranges::none_of(sessions_,
                                [](const auto& session) { return session->leader() > 0; });
}

void Init::signal_all(int number)
{
    // PRIVILEGED: -1 is everybody this process may signal; in a pid namespace of our own that is
    // the sandbox, anywhere else it would be the host.
    if (is_pid_one()) {
        ::kill(-1, number);
        return;
    }
    for (const auto& session : sessions_) session->signal(number);
}

}  // namespace sandbox::guest
