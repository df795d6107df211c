// SPDX-License-Identifier: Apache-2.0
#include "sys/net/unix.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace sandbox::sys {

namespace {

int native(SocketType type)
{
    return (type == SocketType::stream ? SOCK_STREAM : SOCK_SEQPACKET) | SOCK_CLOEXEC;
}

Result<sockaddr_un> address_of(int dir, const std::string& name)
{
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    // "/proc/self/fd/" and a number leave room for 64 and more of the 108 bytes of sun_path,
    // unix(7).
    if (name.empty() || name.size() > 64 || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos)
        return fail(Code::invalid_argument,
                    "a socket name has 1 to 64 bytes and no slash: \"" + name + "\"");
    // By descriptor: the path of the folder may be longer than any socket address.
    const std::string path = fd_path(dir) + "/" + name;
    if (path.size() >= sizeof address.sun_path)
        return fail(Code::invalid_argument, "socket path too long: " + path);
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    return address;
}

struct Place {
    UniqueFd dir;
    std::string name;
};

Result<Place> split(const std::string& path)
{
    const auto slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    Place place;
    place.dir = TRY(open_file(folder, O_PATH | O_DIRECTORY));
    place.name = slash == std::string::npos ? path : path.substr(slash + 1);
    return place;
}

// sockaddr_un is read by its generic head: that is how the socket calls are typed.
const sockaddr* generic(const sockaddr_un* address)
{
    return reinterpret_cast<const sockaddr*>(address);
}

Status write_rest(int socket, std::string_view bytes)
{
    while (!bytes.empty()) {
        const ssize_t put = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return fail_errno("send");
        bytes.remove_prefix(static_cast<std::size_t>(put));
    }
    return {};
}

}  // namespace

Result<SocketPair> socket_pair(SocketType type)
{
    int ends[2] = {-1, -1};
    if (::socketpair(AF_UNIX, native(type), 0, ends) != 0) return fail_errno("socketpair");
    return SocketPair{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Result<UniqueFd> unix_listen(int dir, const std::string& name, SocketType type, mode_t mode,
                             int backlog)
{
    const sockaddr_un address = TRY(address_of(dir, name));
    UniqueFd fd(::socket(AF_UNIX, native(type), 0));
    if (!fd) return fail_errno("socket");
    // On a socket not yet bound, fchmod sets the mode that the name is born with: no moment in
    // which another mode can be seen (unix(7); net/unix/af_unix.c, unix_bind_bsd). A chmod after
    // bind alone would leave such a moment.
    if (::fchmod(fd.get(), mode) != 0) return fail_errno("fchmod", name);
    if (::bind(fd.get(), generic(&address), sizeof address) != 0) return fail_errno("bind", name);
    // The caller's umask took bits off at bind.
    if (::fchmodat(dir, name.c_str(), mode, 0) != 0) return fail_errno("fchmodat", name);
    // Last: nobody can connect before the mode is right.
    if (::listen(fd.get(), backlog) != 0) return fail_errno("listen", name);
    return fd;
}

namespace {

// The kernel waits so long for room in a listener's queue (net/unix/af_unix.c, unix_wait_for_peer);
// 0 is for ever.
Status set_send_timeout(int socket, Millis timeout)
{
    timeval time{};
    time.tv_sec = static_cast<time_t>(timeout.count() / 1000);
    time.tv_usec = static_cast<suseconds_t>(timeout.count() % 1000 * 1000);
    if (::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time) != 0)
        return fail_errno("setsockopt(SO_SNDTIMEO)");
    return {};
}

}  // namespace

Result<UniqueFd> unix_connect(int dir, const std::string& name, SocketType type, Millis patience)
{
    const sockaddr_un address = TRY(address_of(dir, name));
    UniqueFd fd(::socket(AF_UNIX, native(type), 0));
    if (!fd) return fail_errno("socket");
    TRY_VOID(set_send_timeout(fd.get(), std::max(patience, Millis{1})));
    int failed = 0;
    do {
        failed = ::connect(fd.get(), generic(&address), sizeof address);
    } while (failed != 0 && errno == EINTR);
    if (failed != 0 && errno == EAGAIN) {
        return fail(Code::deadline_exceeded, "whoever listens at " + name + " took nobody in for " +
                                                 format_duration(patience) +
                                                 ": it is stopped or stuck");
    }
    if (failed != 0) return fail_errno("connect", name);
    TRY_VOID(set_send_timeout(fd.get(), Millis{0}));
    return fd;
}

Result<UniqueFd> unix_listen(const std::string& path, SocketType type, mode_t mode, int backlog)
{
    const Place place = TRY(split(path));
    return unix_listen(place.dir.get(), place.name, type, mode, backlog);
}

Result<UniqueFd> unix_connect(const std::string& path, SocketType type, Millis patience)
{
    const Place place = TRY(split(path));
    return unix_connect(place.dir.get(), place.name, type, patience);
}

Result<UniqueFd> accept_one(int listener)
{
    int fd = -1;
    do {
        // Blocking whatever the listener is: accept4(2) does not pass O_NONBLOCK on.
        fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) return fail_errno("accept4");
    return UniqueFd(fd);
}

Status send_fds(int socket, std::string_view bytes, std::span<const int> fds)
{
    if (fds.size() > kMaxFds)
        return fail(Code::invalid_argument, "one message carries at most 16 descriptors");
    // sendmsg does not write through the pointer; iovec has no const form.
    iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(fds.size_bytes());
        cmsghdr* head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(fds.size_bytes());
        std::memcpy(CMSG_DATA(head), fds.data(), fds.size_bytes());
    }
    ssize_t sent = -1;
    do {
        // MSG_NOSIGNAL: a peer that is gone is an error of this call, not the end of the process.
        sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) return fail_errno("sendmsg");
    // The descriptors went with the first byte; the rest of a stream message follows plainly.
    bytes.remove_prefix(static_cast<std::size_t>(sent));
    return bytes.empty() ? Status{} : write_rest(socket, bytes);
}

namespace {

// Takes every descriptor and credential that came, before anything is judged: what is in our table
// must have an owner even when the message is refused.
void take_control(msghdr& message, Received& received)
{
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
         head = CMSG_NXTHDR(&message, head)) {
        if (head->cmsg_level != SOL_SOCKET) continue;
        const std::size_t length = head->cmsg_len - CMSG_LEN(0);
        if (head->cmsg_type == SCM_RIGHTS) {
            for (std::size_t at = 0; at + sizeof(int) <= length; at += sizeof(int)) {
                int fd = -1;
                std::memcpy(&fd, CMSG_DATA(head) + at, sizeof fd);
                received.fds.emplace_back(fd);
            }
        } else if (head->cmsg_type == SCM_CREDENTIALS && length >= sizeof(ucred)) {
            ucred credentials{};
            std::memcpy(&credentials, CMSG_DATA(head), sizeof credentials);
            received.pid = credentials.pid;
            received.uid = credentials.uid;
            received.gid = credentials.gid;
        }
    }
}

}  // namespace

Result<Received> recv_fds(int socket, std::size_t max_bytes, std::size_t max_fds)
{
    Received received;
    received.bytes.resize(max_bytes);
    iovec part{received.bytes.data(), max_bytes};
    // One more descriptor than allowed fits, so that "too many" is seen and closed by us instead
    // of being cut off by the kernel.
    alignas(cmsghdr) char
        control[CMSG_SPACE(sizeof(int) * (kMaxFds + 1)) + CMSG_SPACE(sizeof(ucred))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t got = -1;
    do {
        // MSG_CMSG_CLOEXEC: no moment in which a fork could pass them on.
        got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0) return fail_errno("recvmsg");
    take_control(message, received);
    if ((message.msg_flags & MSG_CTRUNC) != 0 || received.fds.size() > max_fds)
        return fail(Code::corrupt, "a message carried more descriptors than the " +
                                       std::to_string(max_fds) + " allowed");
    // A seqpacket that was cut must not be taken for a whole one.
    if ((message.msg_flags & MSG_TRUNC) != 0)
        return fail(Code::corrupt, "a message was longer than the " + std::to_string(max_bytes) +
                                       " bytes allowed");
    received.bytes.resize(static_cast<std::size_t>(got));
    return received;
}

Status enable_credentials(int socket)
{
    const int on = 1;
    if (::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
        return fail_errno("setsockopt(SO_PASSCRED)");
    return {};
}

Result<PeerCredentials> peer_credentials(int socket)
{
    ucred credentials{};
    socklen_t length = sizeof credentials;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
        return fail_errno("getsockopt(SO_PEERCRED)");
    return PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
}

}  // namespace sandbox::sys
