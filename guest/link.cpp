// SPDX-License-Identifier: Apache-2.0
#include "guest/link.hpp"

#include <sys/socket.h>

#include <cerrno>

#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::guest {

void ShimLink::watch(Poller& poller)
{
    at_ = poller.watch(channel_.get(), static_cast<short>(POLLIN | (told_.empty() ? 0 : POLLOUT)));
}

std::optional<Link::Arrived> ShimLink::next(const Poller& poller)
{
    // One a turn: a packet's stream is watched before the next is taken, and a flood of packets
    // cannot starve sessions.
    if (taken_ || (poller.ready(at_) & ~POLLOUT) == 0) return std::nullopt;
    taken_ = true;
    return take_packet();
}

std::optional<Link::Arrived> ShimLink::take_packet()
{
    const auto note = [](const char* text) { return Arrived{{}, nullptr, {}, text}; };
    // Non-blocking, as the channel is. recv_fds() has closed what came with a packet that it
    // refuses.
    auto packet = sys::recv_fds(channel_.get(), wire::kMaxInitPacket, sys::kMaxFds);
    if (!packet) {
        if (packet.error().errnum() == EAGAIN || packet.error().errnum() == EINTR)
            return std::nullopt;
        // Cut, or too many descriptors: this packet is lost, and the channel goes on.
        if (packet.error().code() == Code::corrupt) return note("a packet was not taken");
        ended_ = true;
        return std::nullopt;
    }
    // End of file: a packet always has a type. The shim is gone.
    if (packet->bytes.empty()) {
        ended_ = true;
        return std::nullopt;
    }
    const auto message = wire::decode_packet(wire::Direction::to_guest,
                                             std::as_bytes(std::span(packet->bytes)));
    // `what` is a literal; the peer's bytes are not repeated.
    if (!message) return note(message.error().what);
    const auto* pass = std::get_if<wire::Pass>(&*message);
    if (pass == nullptr) return note("a packet that is not PASS");
    // All are closed on return: a stream with the wrong leaf would run outside its limits.
    if (packet->fds.size() != 1U + pass->leaf_count)
        return note("PASS with another number of descriptors");
    sys::UniqueFd stream = std::move(packet->fds.front());
    packet->fds.erase(packet->fds.begin());
    // Also the test that it is a descriptor that can be used.
    if (!sys::set_nonblocking(stream.get())) return note("PASS without a stream");
    return Arrived{*pass, std::make_unique<SocketStream>(std::move(stream)), std::move(packet->fds),
                   nullptr};
}

// A shim that does not listen loses a line, not the sandbox; what it must hear is kept until then:
// two packets a session at most, and no more sessions than the limit.
void ShimLink::tell(wire::ByteVector packet, Keep keep)
{
    // Not behind told_: a line for the log may overtake.
    if (keep == Keep::always)
        told_.push_back(std::move(packet));
    else
        ::send(channel_.get(), packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void ShimLink::flush()
{
    while (!told_.empty()) {
        const wire::ByteVector& packet = told_.front();
        const ssize_t sent = ::send(channel_.get(), packet.data(), packet.size(),
                                    MSG_NOSIGNAL | MSG_DONTWAIT);
        // Another error is the end of the channel, which next() will see.
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
        told_.pop_front();
    }
}

}  // namespace sandbox::guest
