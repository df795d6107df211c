// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "guest/outbox.hpp"
#include "guest/poller.hpp"
#include "guest/session.hpp"
#include "sys/fd.hpp"
#include "wire/wire.hpp"

namespace sandbox::guest {

// Values that must reach neither swap nor a core file: locked memory, wiped when dropped.
class Secrets {
public:
    // False when the memory cannot be locked: then nothing is kept.
    [[nodiscard]] bool keep(const wire::Provision& provision) noexcept;
    [[nodiscard]] bool rotate(const wire::Rotate& rotate) noexcept;

private:
    struct Held {
        wire::Nonce event_nonce;
        wire::Nonce egress_token;
        wire::Nonce service_token;
    };
    Held* held_ = nullptr;  // pages of their own, for the life of the process
};

// What outlives one control connection.
struct ControlState {
    Gatekeeper gate;
    Secrets secrets;
    wire::ServiceState service = wire::ServiceState::not_started;
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
