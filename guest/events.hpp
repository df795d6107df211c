// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "guest/outbox.hpp"
#include "guest/poller.hpp"
#include "guest/stream.hpp"
#include "wire/wire.hpp"

namespace sandbox::guest {

// Port 5002: what PID 1 says of itself, unasked. The stream is made by the host and passed in, the
// first frame is ours. The sequence goes on across streams. Holds a reference to it. Never blocks:
// what the host does not read is kept, up to kHighWater and the few state changes there are.
class Events {
public:
    Events(std::unique_ptr<Stream> stream, const wire::Nonce& nonce, std::uint64_t& sequence,
           std::uint32_t heartbeat_ms);

    void watch(Poller& poller);
    void handle(const Poller& poller, std::int64_t now);
    // Milliseconds, now_ms(): when handle() wants to be called at the latest.
    std::int64_t deadline() const noexcept { return quiet_until_; }
    bool done() const noexcept { return done_; }

    void tell_service(wire::ServiceState state, std::int32_t exit);
    void tell_guest(wire::GuestEvent kind, std::uint64_t value);

private:
    void beat(std::int64_t now);
    void rest(std::int64_t now) noexcept;
    void flush();

    std::unique_ptr<Stream> stream_;
    std::uint64_t& sequence_;
    std::int64_t heartbeat_ms_;
    Outbox out_;
    std::int64_t quiet_until_ = kNever;
    bool done_ = false;
};

}  // namespace sandbox::guest
