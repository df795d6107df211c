// SPDX-License-Identifier: Apache-2.0
#include "guest/stream.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "sys/net/unix.hpp"

namespace sandbox::guest {
namespace {

constexpr std::size_t kMostStdioFds = 3;  // all that ever comes with bytes: stdio of a session

}  // namespace

ssize_t SocketStream::read(std::span<std::byte> buffer, std::vector<sys::UniqueFd>* fds)
{
    // As recv(2), including a plain read of 0 at the end.
    if (fds == nullptr) return ::recv(fd_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    auto got = sys::recv_fds(fd_.get(), buffer.size(), kMostStdioFds);
    if (!got) {
        // EBADMSG: too many descriptors, or cut ones.
        errno = got.error().errnum() != 0 ? got.error().errnum() : EBADMSG;
        return -1;
    }
    for (sys::UniqueFd& fd : got->fds) fds->push_back(std::move(fd));
    std::ranges::copy(std::as_bytes(std::span(got->bytes)), buffer.begin());
    return static_cast<ssize_t>(got->bytes.size());
}

void MuxStream::watch(Poller& poller, short events)
{
    wanted_ = events;
    // Nothing will wake poll() for what is here already.
    // What is readable or writable in the engine no descriptor shows.
    if (ready(poller) != 0) poller.wake();
}

short MuxStream::ready(const Poller& /*poller*/) const
{
    int state = 0;
    // From the engine's state alone; poll() has nothing to do with it.
    if (!engine_.readable(id_).empty() || engine_.at_end(id_)) state |= POLLIN;
    if (engine_.room(id_) > 0 || engine_.is_broken(id_)) state |= POLLOUT;
    state &= wanted_;
    // Unasked, as poll(2) reports it.
    if (engine_.is_broken(id_)) state |= POLLHUP;
    return static_cast<short>(state);
}

ssize_t MuxStream::read(std::span<std::byte> buffer, std::vector<sys::UniqueFd>* /*fds*/)
{
    const auto bytes = engine_.readable(id_);
    const std::size_t count = std::min(bytes.size(), buffer.size());
    if (count == 0) {
        if (engine_.at_end(id_)) return 0;
        errno = EAGAIN;
        return -1;
    }
    std::copy_n(bytes.begin(), count, buffer.begin());
    // Gives the peer credit for as many.
    engine_.consume(id_, count);
    return static_cast<ssize_t>(count);
}

Outbox::Flushed MuxStream::flush(Outbox& out)
{
    if (out.empty()) return Outbox::Flushed::all;
    if (engine_.is_broken(id_)) return Outbox::Flushed::broken;
    // As much as the peer's credit allows.
    out.take(engine_.write(id_, out.front()));
    return out.empty() ? Outbox::Flushed::all : Outbox::Flushed::blocked;
}

}  // namespace sandbox::guest
