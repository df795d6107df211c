// SPDX-License-Identifier: Apache-2.0
#include "shim/guest_events.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "sys/deadline.hpp"
#include "sys/file.hpp"

namespace sandbox::shim {

namespace {

constexpr std::size_t kEventBuffer = 4096;  // of one turn: a flood leaves room for others
constexpr std::int64_t kNsPerMs = 1'000'000;
// A timer this late means that we slept, with the host or stopped: the guest did too, and gets its
// time again.
constexpr Millis kWeSlept{5'000};

constexpr int kMostTurns = 16;  // reads of kEventBuffer
// More than any guest has processes for: what it tells must not overflow a count.
constexpr std::uint64_t kMostKills = 1'000'000;

std::unexpected<Error> violation(const char* what)
{
    return fail(Code::corrupt, std::string("sandbox-init broke the event protocol: ") + what);
}

// Takes the same time wherever the first difference is.
bool same_nonce(std::span<const std::byte> found, const wire::Nonce& wanted)
{
    unsigned difference = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i)
        difference |= std::to_integer<unsigned>(found[i]) ^ wanted[i];
    return difference == 0;
}

}  // namespace

// docs/protocol.md: type and length, then the nonce, then the version; a peer without the nonce
// learns nothing.
Status EventStream::take_first(std::span<const std::byte>& bytes)
{
    const std::size_t count = std::min(bytes.size(), first_.size() - first_fill_);
    std::ranges::copy(bytes.first(count),
                      first_.begin() + static_cast<std::ptrdiff_t>(first_fill_));
    // Kept here until complete: the decoder's first frame has a fixed size, and a slow peer must
    // not make us wait.
    first_fill_ += count;
    bytes = bytes.subspan(count);
    if (first_fill_ < first_.size()) return {};
    const wire::Header wanted{wire::EventAuth::kType,
                              static_cast<std::uint32_t>(first_.size() - wire::kHeaderSize)};
    const wire::HeaderBytes header = wire::encode_header(wanted);
    // Compared as bytes before anything is decoded: a peer without the nonce must not reach a
    // parser.
    if (!std::equal(header.begin(), header.end(), first_.begin()))
        return violation("another first frame");
    const std::span<const std::byte> payload = std::span(first_).subspan(wire::kHeaderSize);
    if (!same_nonce(payload.subspan(sizeof(std::uint16_t)), nonce_))
        return violation("a foreign nonce");
    const auto message = wire::decode_as<wire::EventMessage>(wire::Direction::to_host,
                                                             wire::EventAuth::kType, payload);
    if (message) return {};
    // Only a peer with the nonce hears why: its release differs from ours, which is our own
    // mistake.
    const wire::ErrorMessage error{static_cast<std::uint16_t>(message.error().error), "EVENT_AUTH"};
    if (const auto frame = wire::encode(error)) {
        static_cast<void>(
            send(socket_.get(), frame->data(), frame->size(), MSG_NOSIGNAL | MSG_DONTWAIT));
    }
    return violation("another version");
}

Status EventStream::take(const wire::EventMessage& message)
{
    std::uint64_t sequence = 0;
    if (const auto* beat = std::get_if<wire::Heartbeat>(&message)) {
        sequence = beat->seq;
    } else if (const auto* service = std::get_if<wire::ServiceStateEvent>(&message)) {
        sequence = service->seq;
        service_ = *service;
    } else if (const auto* state = std::get_if<wire::GuestStateEvent>(&message)) {
        sequence = state->seq;
        if (state->kind == wire::GuestEvent::oom_kill)
            oom_kills_ = std::min(oom_kills_ + std::min(state->value, kMostKills), kMostKills);
    } else {
        return violation("an ERROR, or a frame that is none of its events");
    }
    // Grows, not "by one": a guest restored from a snapshot may have skipped some. A replay would
    // not.
    if (sequence <= sequence_) return violation("a sequence number that does not grow");
    sequence_ = sequence;
    ++frames_;
    return {};
}

Result<std::uint32_t> EventStream::read_more()
{
    std::array<std::byte, kEventBuffer> buffer;
    // Never blocks, and one read a turn: the loop serves others between two floods.
    const ssize_t count = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return 0U;
    if (count <= 0) return fail(Code::unavailable, "sandbox-init closed its event stream");
    std::span<const std::byte> bytes(buffer.data(), static_cast<std::size_t>(count));
    // Counted anew: the result is about this call.
    frames_ = 0;
    if (first_fill_ < first_.size()) TRY_VOID(take_first(bytes));
    if (first_fill_ < first_.size()) return 0U;
    while (true) {
        const auto frame = decoder_.next(bytes);
        if (!frame) return violation(frame.error().what);
        if (!*frame) return frames_;
        const auto message = wire::decode_as<wire::EventMessage>(wire::Direction::to_host,
                                                                 (*frame)->type, (*frame)->payload);
        if (!message) return violation(message.error().what);
        TRY_VOID(take(*message));
    }
}

GuestEvents::GuestEvents(Loop& loop, EventStream stream, Millis liveness, Listener listener)
    : loop_(loop), stream_(std::move(stream)), liveness_(liveness), listener_(std::move(listener))
{
}

GuestEvents::~GuestEvents() { stop(); }

Status GuestEvents::start()
{
    // BOOTTIME: the time asleep is real for a host's clock, and forgiven in on_deadline().
    alive_ns_ = sys::boottime_ns();
    watch_ = TRY(loop_.when_readable(stream_.fd(), [this] { on_readable(); }));
    return arm(liveness_);
}

void GuestEvents::stop()
{
    if (watch_) loop_.forget(*watch_);
    watch_.reset();
    hold();
}

void GuestEvents::hold()
{
    if (timer_) loop_.forget(*timer_);
    timer_.reset();
}

Status GuestEvents::release()
{
    hold();
    alive_ns_ = sys::boottime_ns();
    return arm(liveness_);
}

Status GuestEvents::arm(Millis delay)
{
    due_ns_ = sys::boottime_ns() + delay.count() * kNsPerMs;
    timer_ = TRY(loop_.after(delay, [this] { on_deadline(); }));
    return {};
}

void GuestEvents::on_readable()
{
    const auto frames = stream_.read_more();
    // Only a whole frame counts as a sign of life: single bytes could be sent for ever.
    if (frames) {
        if (*frames > 0) alive_ns_ = sys::boottime_ns();
        if (listener_.oom && stream_.oom_kills() > oom_told_)
            listener_.oom(stream_.oom_kills() - std::exchange(oom_told_, stream_.oom_kills()));
        return;
    }
    // Unless the sandbox ends, the deadline follows.
    if (watch_) loop_.forget(*watch_);
    watch_.reset();
    stream_.close();
    if (frames.error().code() == Code::corrupt) listener_.violated(frames.error().message());
}

Status GuestEvents::replace(sys::UniqueFd socket, const wire::Nonce& nonce,
                            const sys::Deadline& deadline)
{
    while (watch_) {
        const auto ready = sys::poll_one(stream_.fd(), POLLIN, deadline);
        if (!ready || *ready == 0) break;
        on_readable();
    }
    stop();
    stream_ = EventStream(std::move(socket), nonce, stream_);
    return start();
}

void GuestEvents::await_service_end(const sys::Deadline& deadline)
{
    const auto has_ended = [this] {
        return stream_.service() && stream_.service()->state == wire::ServiceState::exited;
    };
    while (watch_ && !has_ended()) {
        const auto ready = sys::poll_one(stream_.fd(), POLLIN, deadline);
        if (!ready || *ready == 0) return;
        on_readable();
    }
}

std::uint64_t GuestEvents::count_oom_kills()
{
    // Bounded: a guest that floods its events must not keep us here.
    for (int turns = 0; watch_ && turns < kMostTurns; ++turns) {
        const auto ready = sys::poll_one(stream_.fd(), POLLIN, sys::Deadline::after(Millis{0}));
        if (!ready || *ready == 0) break;
        on_readable();
    }
    return stream_.oom_kills();
}

void GuestEvents::on_deadline()
{
    timer_.reset();
    const std::int64_t now = sys::boottime_ns();
    // Forgiven once for each sleep; a guest that stays silent is found a span later.
    if (now - due_ns_ > kWeSlept.count() * kNsPerMs) alive_ns_ = now;
    const std::int64_t left = alive_ns_ + liveness_.count() * kNsPerMs - now;
    if (left > 0) {
        // Rounded up: a timer that is early would fire twice.
        if (arm(Millis{left / kNsPerMs + 1})) return;
    }
    const std::string span = format_duration(liveness_);
    stop();
    listener_.silent("sandbox-init gave no sign of life for " + span);
}

}  // namespace sandbox::shim
