// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "sys/fd.hpp"

namespace sandbox::sys {

// stream: bytes; seqpacket: messages that arrive whole or not at all.
enum class SocketType { stream, seqpacket };

struct SocketPair {
    UniqueFd first;
    UniqueFd second;
};
// Both ends CLOEXEC and blocking.
[[nodiscard]] Result<SocketPair> socket_pair(SocketType type);

// Sockets by folder descriptor and name: a path of any length works, because the kernel is given
// /proc/self/fd/N/name (sun_path holds 108 bytes). `name` has no slash and at most 64 bytes.
// already_exists (EADDRINUSE or a file of that name): the caller removes what it knows to be its
// own; nothing is unlinked here.
[[nodiscard]] Result<UniqueFd> unix_listen(int dir, const std::string& name, SocketType type,
                                           mode_t mode, int backlog = 64);
// A listener whose queue is full lets others wait for it, for ever where it is stopped or stuck:
// Code::deadline_exceeded once that took `patience`.
inline constexpr Millis kConnectPatience{5'000};
[[nodiscard]] Result<UniqueFd> unix_connect(int dir, const std::string& name, SocketType type,
                                            Millis patience = kConnectPatience);
// The same for a whole path: opens its folder first.
[[nodiscard]] Result<UniqueFd> unix_listen(const std::string& path, SocketType type, mode_t mode,
                                           int backlog = 64);
[[nodiscard]] Result<UniqueFd> unix_connect(const std::string& path, SocketType type,
                                            Millis patience = kConnectPatience);
[[nodiscard]] Result<UniqueFd> accept_one(int listener);  // CLOEXEC

// Descriptors that one message may carry. The kernel's own ceiling is 253 (SCM_MAX_FD).
inline constexpr std::size_t kMaxFds = 16;

// One sendmsg(2) with SCM_RIGHTS. On a stream socket `bytes` must not be empty. MSG_NOSIGNAL. The
// descriptors stay the caller's. Blocks while the socket is full, unless it is non-blocking; then
// part of a stream message may have gone.
[[nodiscard]] Status send_fds(int socket, std::string_view bytes, std::span<const int> fds);

struct Received {
    std::string bytes;           // empty at end of stream
    std::vector<UniqueFd> fds;   // CLOEXEC
    std::optional<pid_t> pid;    // SCM_CREDENTIALS, when enable_credentials() was called
    std::optional<uid_t> uid;
    std::optional<gid_t> gid;
};
// One recvmsg(2); blocks on a blocking socket. More than `max_bytes` (seqpacket) or more than
// `max_fds` descriptors is Code::corrupt and every descriptor that came is closed. Requires:
// max_fds <= kMaxFds.
[[nodiscard]] Result<Received> recv_fds(int socket, std::size_t max_bytes, std::size_t max_fds);

// The kernel then adds the sender's pid, uid and gid to each message, as seen from our namespaces.
[[nodiscard]] Status enable_credentials(int socket);  // SO_PASSCRED

// Of the moment of connect or socketpair (unix(7)): not of whoever holds the socket now.
struct PeerCredentials {
    pid_t pid = 0;
    uid_t uid = 0;
    gid_t gid = 0;
};
[[nodiscard]] Result<PeerCredentials> peer_credentials(int socket);  // SO_PEERCRED

}  // namespace sandbox::sys
