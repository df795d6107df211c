// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "guest/control.hpp"
#include "guest/events.hpp"
#include "guest/link.hpp"
#include "guest/poller.hpp"
#include "guest/session.hpp"
#include "sys/fd.hpp"
#include "wire/wire.hpp"

namespace sandbox::guest {

// What differs in a guest of its own kernel; none of it on a host.
struct Surroundings {
    bool own_clock = false;                        // to be set as the host says
    int user_namespace = -1;                       // that sessions are in
    std::function<void()> ready;                   // READY came
    std::function<void(const std::string&)> over;  // the session of this name
    std::function<std::uint64_t()> oom_kills;      // so far, in all sessions
    int memory_events = -1;                        // POLLPRI: they may have become more
};

// The whole of sandbox-init after its record was read: takes streams from the channel, runs what
// they ask, reaps. Single-threaded; nothing in it blocks but poll(). A peer can end its own stream,
// never this.
class Init {
public:
    Init(wire::Bootstrap boot, Link& link, Surroundings around = {})
        : boot_(std::move(boot)), link_(link), around_(std::move(around))
    {
        state_.gate.user_namespace = around_.user_namespace;
        state_.own_clock = around_.own_clock;
    }
    // Until the channel closes or POWEROFF: the exit status, 0 also when it was asked to end. Once.
    int run();

private:
    [[nodiscard]] Status begin();
    void turn();
    int timeout(std::int64_t now) const;
    void accept(Link::Arrived arrived);
    void refuse_stream(Link::Arrived& arrived, wire::WireError error, const char* what);
    void serve_sessions(std::int64_t now);
    void tell_machine();
    void reap();
    void log(std::string_view text);
    // What the shim must hear of a session: it is kept until the channel takes it.
    template <class M>
    void tell(const M& message);
    void announce_service();
    void begin_stop(std::int64_t now);
    bool stopped(std::int64_t now) const;
    void signal_all(int number);

    // Declared first: sessions and control hold references to it.
    wire::Bootstrap boot_;
    Link& link_;
    Surroundings around_;
    bool ready_told_ = false;
    std::uint64_t oom_told_ = 0;
    bool may_be_killed_ = false;  // somebody, since OOM kills were last asked for
    sys::UniqueFd signals_;
    Poller poller_;
    // Before its users, too.
    ControlState state_;
    std::unique_ptr<Control> control_;
    std::unique_ptr<Events> events_;
    std::uint64_t event_sequence_ = 0;
    wire::ServiceState announced_ = wire::ServiceState::not_started;  // on this event stream
    std::vector<std::unique_ptr<Session>> sessions_;
    bool ended_ = false;
    std::int64_t kill_at_ = kNever;  // while stopping
    std::size_t at_signals_ = Poller::kNone;
    std::size_t at_memory_ = Poller::kNone;
};

}  // namespace sandbox::guest
