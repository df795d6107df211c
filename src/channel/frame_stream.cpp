// SPDX-License-Identifier: Apache-2.0
#include "channel/frame_stream.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "base/diagnostic.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::channel {

Status send_bytes(int socket, std::span<const std::byte> bytes, std::span<const int> fds)
{
    if (!fds.empty()) {
        // The first byte carries the descriptors; the rest follows like any other bytes, so that
        // a frame larger than the socket buffer needs no special case.
        const std::string_view first(reinterpret_cast<const char*>(bytes.data()), 1);
        TRY_VOID(sys::send_fds(socket, first, fds));
        bytes = bytes.subspan(1);
    }
    while (!bytes.empty()) {
        const ssize_t count = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count < 0) {
            if (errno == EINTR) continue;
            if (errno == EAGAIN) {
                static_cast<void>(TRY(sys::poll_one(socket, POLLOUT, sys::Deadline::never())));
                continue;
            }
            return fail_errno("send");
        }
        bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
    return {};
}

Result<std::size_t> receive_bytes(int socket, std::span<std::byte> buffer, sys::Deadline deadline)
{
    while (true) {
        const short events = TRY(sys::poll_one(socket, POLLIN, deadline));
        if (events == 0) return fail(Code::deadline_exceeded, "nothing came in time");
        const ssize_t count = recv(socket, buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (count >= 0) return static_cast<std::size_t>(count);
        if (errno == ECONNRESET) return std::size_t{0};
        if (errno != EINTR && errno != EAGAIN) return fail_errno("recv");
    }
}

Error to_error(const wire::ErrorMessage& message)
{
    const auto code = static_cast<wire::WireError>(message.code);
    return {Code::denied, "sandbox-init answered " + std::string(wire::to_string(code)) + ": " +
                              escaped(message.detail)};
}

}  // namespace sandbox::channel
