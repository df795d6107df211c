// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "guest/outbox.hpp"
#include "guest/poller.hpp"
#include "guest/secrets.hpp"
#include "guest/session.hpp"
#include "guest/stream.hpp"
#include "wire/wire.hpp"

namespace sandbox::guest {

// What outlives one control connection.
// Sessions and Init look at it as well; one of it, and it does not move.
struct ControlState {
    ControlState() { gate.secrets = &secrets; }
    ControlState(const ControlState&) = delete;
    ControlState& operator=(const ControlState&) = delete;

    Gatekeeper gate;
    Secrets secrets;
    wire::ServiceState service = wire::ServiceState::not_started;
    std::int32_t service_exit = 0;  // exit code, or minus the signal
    bool own_clock = false;  // of a kernel of our own: PROVISION and TIME_SET set it
    bool poweroff = false;
    // False: no such session, or it has ended.
    std::function<bool(std::string_view session, int signal)> signal_session;
    std::int64_t clock_stepped_ns = 0;  // and not told on port 5002 yet
};

// Port 5000: one request, one reply. Holds references: record and state outlive it. Never blocks.
class Control {
public:
    Control(std::unique_ptr<Stream> stream, const wire::Bootstrap& boot, ControlState& state)
        : boot_(boot), state_(state), stream_(std::move(stream))
    {
    }
    // watch() in every turn before poll, handle() after it.
    void watch(Poller& poller);
    void handle(const Poller& poller);
    // Then the loop drops it; its stream closes with it.
    bool done() const noexcept { return done_; }

private:
    void take(const wire::ControlMessage& message);
    void refuse(wire::Failure failure);
    void set_time(std::uint64_t time_ns);
    void flush();

    const wire::Bootstrap& boot_;
    ControlState& state_;
    std::unique_ptr<Stream> stream_;
    wire::FrameDecoder decoder_{wire::Port::control, wire::Direction::to_guest};
    Outbox out_;
    bool closing_ = false;
    bool done_ = false;
};

}  // namespace sandbox::guest
