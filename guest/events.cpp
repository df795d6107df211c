// SPDX-License-Identifier: Apache-2.0
#include "guest/events.hpp"

namespace sandbox::guest {

// `sequence` is Init's, so that a new stream goes on where the last one ended.
Events::Events(std::unique_ptr<Stream> stream, const wire::Nonce& nonce, std::uint64_t& sequence,
               std::uint32_t heartbeat_ms)
    : stream_(std::move(stream)), sequence_(sequence), heartbeat_ms_(heartbeat_ms)
{
    // The first frame: the host takes nothing else from who it does not know.
    out_.send(wire::EventAuth{wire::kProtocolVersion, nonce});
    // A sign of life with the nonce: whoever waits for one need not wait for the first silence.
    beat(now_ms());
    flush();
}

void Events::watch(Poller& poller)
{
    const int wanted = POLLIN | (out_.empty() ? 0 : POLLOUT);
    stream_->watch(poller, static_cast<short>(wanted));
}

void Events::handle(const Poller& poller, std::int64_t now)
{
    // The host says nothing here but ERROR and its end, and both are the end.
    if ((stream_->ready(poller) & (POLLIN | POLLHUP | POLLERR)) != 0) {
        done_ = true;
        return;
    }
    // Any frame of ours is a sign of life, so a heartbeat is due after silence only.
    if (now >= quiet_until_) beat(now);
    flush();
}

void Events::tell_service(wire::ServiceState state, std::int32_t exit)
{
    // After the session's own EXIT, or before: they travel on different streams.
    out_.send(wire::ServiceStateEvent{++sequence_, state, exit, 0});
    rest(now_ms());
    flush();
}

void Events::tell_guest(wire::GuestEvent kind, std::uint64_t value)
{
    out_.send(wire::GuestStateEvent{++sequence_, kind, value});
    rest(now_ms());
    flush();
}

void Events::beat(std::int64_t now)
{
    rest(now);
    // A host that does not read learns nothing from more of them.
    if (out_.size() >= kHighWater) return;
    out_.send(wire::Heartbeat{++sequence_, static_cast<std::uint64_t>(now)});
}

void Events::rest(std::int64_t now) noexcept
{
    // 0: the host wants none.
    quiet_until_ = heartbeat_ms_ > 0 ? now + heartbeat_ms_ : kNever;
}

void Events::flush()
{
    if (stream_->flush(out_) == Outbox::Flushed::broken) done_ = true;
}

}  // namespace sandbox::guest
