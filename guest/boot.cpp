// SPDX-License-Identifier: Apache-2.0
#include "guest/boot.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include "sys/file.hpp"
#include "wire/wire.hpp"

namespace sandbox::guest {

Result<wire::Bootstrap> read_bootstrap(int fd)
{
    // Taken over first: it is closed on every way out.
    const sys::UniqueFd record(fd);
    // Before a byte is read: what is checked must be what is used.
    if (!TRY_WITH(sys::is_sealed(fd), "bootstrap record"))
        return fail(Code::corrupt, "the bootstrap record is not sealed");
    // By path, because read_file() starts at the beginning; an inherited offset may be anywhere.
    const std::string bytes = TRY(
        sys::read_file(sys::fd_path(fd), wire::kMaxBootstrap + wire::kHeaderSize));
    return TRY(wire::decode_bootstrap(std::as_bytes(std::span(bytes))));
}

Result<sys::UniqueFd> adopt_channel(const wire::Bootstrap& boot)
{
    // A guest's own kernel has no record here and comes by run_machine().
    if (boot.channel != wire::BootChannel::inherited_fd)
        return fail(Code::unavailable, "only the inherited channel is built");
    // Closed on exec from here on: a workload that held it would speak as PID 1.
    // Taken over even if the number is wrong: fcntl and getsockopt say so.
    sys::UniqueFd channel(static_cast<int>(boot.channel_fd));
    int type = 0;
    socklen_t size = sizeof type;
    if (::getsockopt(channel.get(), SOL_SOCKET, SO_TYPE, &type, &size) != 0)
        return fail_errno("getsockopt", "channel");
    if (type != SOCK_SEQPACKET)
        return fail(Code::invalid_argument, "the channel is not a SEQPACKET socket");
    if (::fcntl(channel.get(), F_SETFD, FD_CLOEXEC) != 0) return fail_errno("fcntl", "channel");
    // PID 1 waits in poll() only.
    TRY_VOID(sys::set_nonblocking(channel.get()));
    return channel;
}

}  // namespace sandbox::guest
