// SPDX-License-Identifier: Apache-2.0
#include "guest/init.hpp"

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <limits>
#include <utility>

#include "sys/process.hpp"

namespace sandbox::guest {
namespace {

// Tests run Init as an ordinary process.
bool is_pid_one() { return ::getpid() == 1; }

}  // namespace

int Init::run()
{
    if (const auto begun = begin(); !begun) {
        // The channel may be what failed; then nobody hears it.
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
    // prctl(2): /proc/PID of who is not dumpable belongs to root, and ptrace(2) refuses.
    if (::prctl(PR_SET_DUMPABLE, 0) != 0) return fail_errno("prctl", "PR_SET_DUMPABLE");
    // Orphans come to us also where we are not PID 1.
    TRY_VOID(sys::become_subreaper());
    // A peer that goes away is an error where we write.
    ::signal(SIGPIPE, SIG_IGN);
    sigset_t child;
    ::sigemptyset(&child);
    ::sigaddset(&child, SIGCHLD);
    // The whole mask: what a launcher left blocked or ignored is not ours to guess. Children set
    // theirs back.
    if (::sigprocmask(SIG_SETMASK, &child, nullptr) != 0) return fail_errno("sigprocmask");
    // Through a descriptor: the loop has one place to wait in, and no handler interrupts it.
    signals_.reset(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_) return fail_errno("signalfd");
    state_.signal_session = [this](std::string_view name, int number) {
        const auto named = std::ranges::find_if(
            sessions_, [&](const auto& session) { return session->name() == name; });
        if (named == sessions_.end() || (*named)->leader() == 0) return false;
        (*named)->signal(number);
        return true;
    };
    tell(wire::InitUp{wire::kProtocolVersion, static_cast<std::uint32_t>(::getpid())});
    link_.flush();
    return {};
}

void Init::turn()
{
    // Built anew each turn, see Poller.
    poller_.clear();
    link_.watch(poller_);
    at_signals_ = poller_.watch(signals_.get(), POLLIN);
    at_memory_ = around_.memory_events < 0 ? Poller::kNone
                                           : poller_.watch(around_.memory_events, POLLPRI);
    if (control_) control_->watch(poller_);
    if (events_) events_->watch(poller_);
    for (const auto& session : sessions_) session->watch(poller_);
    if (!poller_.wait(timeout(now_ms()))) {
        ended_ = true;  // poll fails on broken arguments only: better gone than spinning
        return;
    }
    // First: a pid that has been reaped must not be signalled in this turn.
    if (poller_.ready(at_signals_) != 0) reap();
    link_.receive(poller_);
    const std::int64_t now = now_ms();
    if (control_) {
        control_->handle(poller_);
        if (control_->done()) control_.reset();
    }
    // Before the state of the service: who has heard that it ended has heard of its kills.
    tell_machine();
    // After the reaping: a session whose leader ended drains and reports in this very turn.
    serve_sessions(now);
    announce_service();
    if (events_) {
        events_->handle(poller_, now);
        if (events_->done()) events_.reset();
    }
    // Last: a stream taken now is watched from the next turn on.
    while (auto arrived = link_.next(poller_)) accept(std::move(*arrived));
    link_.flush();
    if (link_.ended()) ended_ = true;
    // Also when POWEROFF came with other frames in this turn.
    if (state_.poweroff && kill_at_ == kNever) begin_stop(now);
    if (kill_at_ != kNever && stopped(now)) ended_ = true;
}

void Init::serve_sessions(std::int64_t now)
{
    for (const auto& session : sessions_) {
        session->handle(poller_, now);
        if (const auto note = session->take_note()) log(session->name() + ": " + *note);
        if (const auto opened = session->take_opened()) tell(*opened);
        if (const auto over = session->take_ended()) {
            tell(*over);
            if (around_.over) around_.over(session->name());
        }
    }
    std::erase_if(sessions_, [](const auto& session) { return session->done(); });
}

// What a kernel of its own has to tell.
void Init::tell_machine()
{
    if (around_.ready && state_.gate.ready && !std::exchange(ready_told_, true)) around_.ready();
    if (!events_) return;
    if (const std::int64_t step = std::exchange(state_.clock_stepped_ns, 0); step != 0)
        events_->tell_guest(wire::GuestEvent::clock_stepped, static_cast<std::uint64_t>(step));
    if (poller_.ready(at_memory_) != 0) may_be_killed_ = true;
    if (!around_.oom_kills || !std::exchange(may_be_killed_, false)) return;
    const std::uint64_t kills = around_.oom_kills();
    if (kills > oom_told_) events_->tell_guest(wire::GuestEvent::oom_kill, kills - oom_told_);
    oom_told_ = kills;
}

int Init::timeout(std::int64_t now) const
{
    // The earliest of all; each handler looks for itself what is due.
    std::int64_t first = kill_at_;
    for (const auto& session : sessions_) first = std::min(first, session->deadline());
    if (events_) first = std::min(first, events_->deadline());
    if (first == kNever) return -1;
    // poll(2) takes an int of milliseconds: 24 days, then it is called again for nothing.
    return static_cast<int>(
        std::clamp<std::int64_t>(first - now, 0, std::numeric_limits<int>::max()));
}

void Init::accept(Link::Arrived arrived)
{
    // `note` is a literal of ours, never text of the peer.
    if (arrived.note != nullptr) log(std::string("a stream was not taken: ") + arrived.note);
    if (!arrived.stream) return;
    if (arrived.note != nullptr) return refuse_stream(arrived, wire::WireError::busy, arrived.note);
    switch (static_cast<wire::Port>(arrived.pass.port)) {
    case wire::Port::control:
        // One at a time; a new one replaces the old.
        control_ = std::make_unique<Control>(std::move(arrived.stream), boot_, state_);
        return;
    case wire::Port::session:
        // While stopping nothing new may begin.
        if (sessions_.size() >= boot_.max_sessions || kill_at_ != kNever)
            return refuse_stream(arrived, wire::WireError::busy,
                                 "session limit reached, or stopping");
        sessions_.push_back(std::make_unique<Session>(std::move(arrived.stream),
                                                      arrived.pass.session, arrived.pass.leaf,
                                                      std::move(arrived.leaf), boot_, state_.gate));
        return;
    case wire::Port::events:
        // Ours to speak on first, and only with the nonce. A new stream replaces the old.
        if (!state_.gate.provisioned)
            return refuse_stream(arrived, wire::WireError::not_provisioned,
                                 "events before PROVISION");
        events_ = std::make_unique<Events>(std::move(arrived.stream), state_.secrets.event_nonce(),
                                           event_sequence_, boot_.heartbeat_ms);
        // So that the new stream hears the state anew.
        announced_ = wire::ServiceState::not_started;
        return;
    default: refuse_stream(arrived, wire::WireError::not_ready, "nothing listens on this port");
    }
}

void Init::announce_service()
{
    for (const auto& session : sessions_) {
        if (!session->is_service() || session->leader() == 0) continue;
        // leader() is 0 once it was reaped; reap() has set the state then.
        state_.service = session->is_running() ? wire::ServiceState::running
                                               : wire::ServiceState::starting;
    }
    if (state_.service == announced_ || !events_) return;
    announced_ = state_.service;
    events_->tell_service(state_.service, state_.service_exit);
}

void Init::refuse_stream(Link::Arrived& arrived, wire::WireError error, const char* what)
{
    // One frame fits an empty socket buffer; if not, closing says enough.
    Outbox out;
    out.send(wire::ErrorMessage{static_cast<std::uint16_t>(error), what});
    arrived.stream->flush(out);
    arrived.stream.reset();
    tell(wire::PassRefused{arrived.pass.session, static_cast<std::uint16_t>(error)});
    if (around_.over && !arrived.leaf.empty()) around_.over(arrived.pass.session);
}

// Cannot fail but for memory: the texts are bounded.
template <class M>
void Init::tell(const M& message)
{
    if (auto packet = wire::encode_packet(message)) link_.tell(std::move(*packet), Keep::always);
}

void Init::reap()
{
    // Signals merge (signalfd(2)): the queue is emptied first, then everybody who ended is asked
    // for.
    std::array<signalfd_siginfo, 16> queue;
    while (::read(signals_.get(), queue.data(), sizeof queue) > 0) {}
    for (;;) {
        // Anybody's child: orphans of the whole sandbox come here (PID 1, subreaper).
        const auto reaped = sys::reap_any();
        if (!reaped || !*reaped) return;
        // Its kill may be counted before its notice is there.
        may_be_killed_ = true;
        for (const auto& session : sessions_) {
            // A leader is known by its pid until this very moment; nobody else can have it.
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
    auto packet = wire::encode_packet(wire::InitLog{std::string(text.substr(0, 1024))});
    if (packet) link_.tell(std::move(*packet), Keep::if_room);
}

void Init::begin_stop(std::int64_t now)
{
    // With 0 the time is over at once, and stopped() says so. What a service leaves behind has none:
    // it ends with it, as on a host.
    const std::uint32_t grace = state_.service == wire::ServiceState::exited ? 0
                                                                             : boot_.stop_grace_ms;
    kill_at_ = now + grace;
    signal_all(grace > 0 ? SIGTERM : SIGKILL);
}

bool Init::stopped(std::int64_t now) const
{
    if (now >= kill_at_) return true;
    // Orphans that outlive the leaders do not hold the end back: PID 1's own end kills them.
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
    // Process groups of the leaders only.
    for (const auto& session : sessions_) session->signal(number);
}

}  // namespace sandbox::guest
