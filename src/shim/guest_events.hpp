// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "base/units.hpp"
#include "shim/loop.hpp"
#include "sys/deadline.hpp"
#include "sys/fd.hpp"
#include "wire/wire.hpp"

// Port 5002 on the host's side: what sandbox-init says of itself, and that it is alive. Everything
// on it is from inside: the first frame must hold the nonce, sequence numbers must grow.
namespace sandbox::shim {

// One stream, without a clock: bytes in, a verdict out. Owns the socket; one thread.
class EventStream {
public:
    EventStream(sys::UniqueFd socket, const wire::Nonce& nonce)
        : socket_(std::move(socket)), nonce_(nonce)
    {
    }
    // One that goes on where `before` ends: a number or a kill that was told there is not told again.
    EventStream(sys::UniqueFd socket, const wire::Nonce& nonce, const EventStream& before)
        : socket_(std::move(socket)), nonce_(nonce), sequence_(before.sequence_),
          oom_kills_(before.oom_kills_)
    {
    }
    int fd() const noexcept { return socket_.get(); }
    void close() noexcept { socket_.reset(); }

    // Reads what is there, once. How many frames came that prove life; Code::corrupt when the peer
    // broke the protocol (then nothing more may be read), Code::unavailable at its end.
    [[nodiscard]] Result<std::uint32_t> read_more();
    const std::optional<wire::ServiceStateEvent>& service() const noexcept { return service_; }
    // Processes that the guest says its kernel killed for memory, since its start.
    std::uint64_t oom_kills() const noexcept { return oom_kills_; }

private:
    [[nodiscard]] Status take_first(std::span<const std::byte>& bytes);
    [[nodiscard]] Status take(const wire::EventMessage& message);

    sys::UniqueFd socket_;
    wire::Nonce nonce_;
    std::array<std::byte, wire::kFirstFrameSize> first_{};
    std::size_t first_fill_ = 0;
    wire::FrameDecoder decoder_{wire::Port::events, wire::Direction::to_host, wire::Stage::later};
    std::uint64_t sequence_ = 0;
    std::uint32_t frames_ = 0;
    std::optional<wire::ServiceStateEvent> service_;
    std::uint64_t oom_kills_ = 0;
};

// Watches a stream on a loop. A violation closes it and is told; a guest that gave no sign of life
// for `liveness` is told once, and that is for the owner to act on. The loop must outlive this, and
// this must outlive its own callbacks: a listener may not destroy it.
class GuestEvents {
public:
    struct Listener {
        std::function<void(const std::string& why)> violated;
        std::function<void(const std::string& why)> silent;
        // So many more processes were killed for memory, as the guest tells it. May be empty.
        std::function<void(std::uint64_t more)> oom;
    };
    GuestEvents(Loop& loop, EventStream stream, Millis liveness, Listener listener);
    ~GuestEvents();
    GuestEvents(const GuestEvents&) = delete;
    GuestEvents& operator=(const GuestEvents&) = delete;

    [[nodiscard]] Status start();
    void stop();
    // Nobody speaks while the machine stands still: its silence counts anew from release() on.
    void hold();
    [[nodiscard]] Status release();
    // Goes on with another stream, which the guest opens with another nonce; the guest has closed its
    // end of the old one by then, or is cut off at the deadline. What came on that counts.
    [[nodiscard]] Status replace(sys::UniqueFd socket, const wire::Nonce& nonce,
                                 const sys::Deadline& deadline);
    // Takes what comes until the guest has told that its service ended: its EXIT comes on another
    // stream, and may be read first. Gives up at the deadline or the stream's end.
    void await_service_end(const sys::Deadline& deadline);
    std::uint64_t oom_kills() const noexcept { return stream_.oom_kills(); }
    // The same, after taking what has come and was not read: the relay delivers it before an EXIT
    // that the guest sent behind it.
    std::uint64_t count_oom_kills();

private:
    void on_readable();
    void on_deadline();
    [[nodiscard]] Status arm(Millis delay);

    Loop& loop_;
    EventStream stream_;
    Millis liveness_;
    Listener listener_;
    std::optional<Loop::Token> watch_;
    std::optional<Loop::Token> timer_;
    std::int64_t alive_ns_ = 0;  // CLOCK_BOOTTIME of the last sign of life
    std::int64_t due_ns_ = 0;  // of the timer
    std::uint64_t oom_told_ = 0;
};

}  // namespace sandbox::shim
