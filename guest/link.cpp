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
    if (taken_ || (poller.ready(at_) & ~POLLOUT) == 0) return std::nullopt;
    taken_ = true;
    return take_packet();
}

std::optional<Link::Arrived> ShimLink::take_packet()
{
    const auto note = [](const char* text) { return Arrived{{}, nullptr, {}, text}; };
    auto packet = sys::recv_fds(channel_.get(), wire::kMaxInitPacket, sys::kMaxFds);
    if (!packet) {
        if (packet.error().errnum() == EAGAIN || packet.error().errnum() == EINTR)
            return std::nullopt;
        if (packet.error().code() == Code::corrupt) return note("a packet was not taken");
        ended_ = true;
        return std::nullopt;
    }
    if (packet->bytes.empty()) {
        ended_ = true;
        return std::nullopt;
    }
    const auto message = wire::decode_packet(wire::Direction::to_guest,
                                             std::as_bytes(std::span(packet->bytes)));
    if (!message) return note(message.error().what);
    const auto* pass = std::get_if<wire::Pass>(&*message);
    if (pass == nullptr) return note("a packet that is not PASS");
    if (packet->fds.size() != 1U + pass->leaf_count)
        return note("PASS with another number of descriptors");
    sys::UniqueFd stream = std::move(packet->fds.front());
    packet->fds.erase(packet->fds.begin());
    if (!sys::set_nonblocking(stream.get())) return note("PASS without a stream");
    return Arrived{*pass, std::make_unique<SocketStream>(std::move(stream)), std::move(packet->fds),
                   nullptr};
}

// A shim that does not listen loses a line, not the sandbox; what it must hear is kept until then:
// two packets a session at most, and no more sessions than the limit.
void ShimLink::tell(wire::ByteVector packet, Keep keep)
{
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
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
        told_.pop_front();
    }
}

}  // namespace sandbox::guest
