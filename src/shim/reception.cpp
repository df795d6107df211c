// SPDX-License-Identifier: Apache-2.0
#include "shim/reception.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::shim {

namespace {

// As many as one host's clients can need; the rest is turned away, not queued.
constexpr std::size_t kMostReceived = 64;

}  // namespace

Result<sys::UniqueFd> listen_for_clients(const std::string& run_dir)
{
    auto folder = TRY(sys::open_dir(run_dir));
    // Only the shim that holds the sandbox's claim comes here: nobody else's socket can be there.
    // Of a generation whose keeper failed: nobody listens there any more.
    if (unlinkat(folder.get(), kSocketName, 0) != 0 && errno != ENOENT) {
        return fail_errno("unlink", kSocketName);
    }
    auto listener = TRY(
        sys::unix_listen(folder.get(), kSocketName, sys::SocketType::seqpacket, 0600));
    TRY_VOID(sys::set_nonblocking(listener.get()));
    return listener;
}

Greeting greeting(const std::string& id)
{
    // Sorted, and only added to: an old client looks for the words it knows.
    return {kGeneration,
            {"pause", "resume", "sessions", "signal", "stop", "touch", "update", "wait"},
            id};
}

std::optional<sys::UniqueFd> receive_client(int listener, std::size_t present)
{
    auto socket = sys::accept_one(listener);
    if (!socket) return std::nullopt;
    // The folder is 0700 root; the check is for a socket that was handed on.
    const auto peer = sys::peer_credentials(socket->get());
    // peer_credentials are those of the moment of connect, unix(7).
    if (present >= kMostReceived || !peer || (peer->uid != 0 && peer->uid != geteuid()))
        return std::nullopt;
    return std::move(*socket);
}

std::optional<std::string> receive_packet(int socket)
{
    // One byte more than allowed: a longer packet is then seen as too long, not cut.
    std::string packet(kMostPacketBytes + 1, '\0');
    const ssize_t count = recv(socket, packet.data(), packet.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
    packet.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return packet;
}

void send_reply(int socket, const Reply& reply)
{
    const auto packet = encode(reply);
    if (!packet) return;
    // MSG_DONTWAIT: a client that does not read must not stop the loop.
    static_cast<void>(send(socket, packet->data(), packet->size(), MSG_DONTWAIT | MSG_NOSIGNAL));
}

}  // namespace sandbox::shim
