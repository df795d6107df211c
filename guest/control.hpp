// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "guest/outbox.hpp"
#include "guest/poller.hpp"
#include "guest/secrets.hpp"
#include "guest/session.hpp"
#include "sys/fd.hpp"
#include "wire/wire.hpp"

namespace sandbox::guest {

// What outlives one control connection.
struct ControlState {
    ControlState() { gate.secrets = &secrets; }
    ControlState(const ControlState&) = delete;
    ControlState& operator=(const ControlState&) = delete;

    Gatekeeper gate;
    Secrets secrets;
    wire::ServiceState service = wire::ServiceState::not_started;
    std::int32_t service_exit = 0;  // exit code, or minus the signal
    bool poweroff = false;
};

// Port 5000: one request, one reply.
class Control {
public:
    Control(sys::UniqueFd stream, const wire::Bootstrap& boot, ControlState& state)
        : boot_(boot), state_(state), stream_(std::move(stream))
    {
    }
    void watch(Poller& poller);
    void handle(const Poller& poller);
    bool done() const noexcept { return done_; }

private:
    void take(const wire::ControlMessage& message);
    void refuse(wire::Failure failure);
    void flush();

    const wire::Bootstrap& boot_;
    ControlState& state_;
    sys::UniqueFd stream_;
    wire::FrameDecoder decoder_{wire::Port::control, wire::Direction::to_guest};
    Outbox out_;
    std::size_t at_stream_ = Poller::kNone;
    bool closing_ = false;
    bool done_ = false;
};

}  // namespace sandbox::guest
