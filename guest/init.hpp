// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "guest/control.hpp"
#include "guest/events.hpp"
#include "guest/poller.hpp"
#include "guest/session.hpp"
#include "sys/fd.hpp"
#include "wire/wire.hpp"

namespace sandbox::guest {

// The whole of sandbox-init after its record was read: takes streams from the channel, runs what
// they ask, reaps. Single-threaded; nothing in it blocks but poll().
class Init {
public:
    Init(wire::Bootstrap boot, sys::UniqueFd channel)
        : boot_(std::move(boot)), channel_(std::move(channel))
    {
    }
    // Until the channel closes or POWEROFF: the exit status.
    int run();

private:
    [[nodiscard]] Status begin();
    void turn();
    int timeout(std::int64_t now) const;
    void take_packet();
    void accept(const wire::Pass& pass, std::vector<sys::UniqueFd> fds);
    void refuse_stream(sys::UniqueFd stream, const wire::Pass& pass, wire::WireError error,
                       const char* what);
    void reap();
    void log(std::string_view text);
    // What the shim must hear of a session: it is kept until the channel takes it.
    template <class M>
    void tell(const M& message);
    void flush_told();
    void announce_service();
    void begin_stop(std::int64_t now);
    bool stopped(std::int64_t now) const;
    void signal_all(int number);

    wire::Bootstrap boot_;
    sys::UniqueFd channel_;
    sys::UniqueFd signals_;
    Poller poller_;
    ControlState state_;
    std::unique_ptr<Control> control_;
    std::unique_ptr<Events> events_;
    std::uint64_t event_sequence_ = 0;
    wire::ServiceState announced_ = wire::ServiceState::not_started;  // on this event stream
    std::vector<std::unique_ptr<Session>> sessions_;
    std::deque<wire::ByteVector> told_;  // packets that the channel has not taken yet
    bool ended_ = false;
    std::int64_t kill_at_ = kNever;  // while stopping
    std::size_t at_channel_ = Poller::kNone;
    std::size_t at_signals_ = Poller::kNone;
};

}  // namespace sandbox::guest
