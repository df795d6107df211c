// SPDX-License-Identifier: Apache-2.0
#include "daemon/service_manager.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string>

namespace sandbox::daemon {

namespace {

constexpr int kFirstListener = 3;  // SD_LISTEN_FDS_START
// One or two are usual; more than this is a broken environment.
constexpr long kMostListeners = 16;

// Nothing for signs, white space and text behind: the environment is anybody's.
std::optional<long> number_in(const char* variable)
{
    const char* text = std::getenv(variable);
    if (text == nullptr) return std::nullopt;
    long number = 0;
    const char* end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, number);
    if (error != std::errc{} || stop != end) return std::nullopt;
    return number;
}

}  // namespace

void notify(std::string_view state)
{
    const char* path = std::getenv("NOTIFY_SOCKET");
    // sd_notify(3): a path or an abstract name; vsock addresses are for machines.
    if (path == nullptr || (path[0] != '/' && path[0] != '@')) return;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::size_t length = std::strlen(path);
    // A name without room for it is no name; nothing is cut.
    if (length >= sizeof address.sun_path) return;
    std::memcpy(address.sun_path, path, length);
    if (path[0] == '@') address.sun_path[0] = '\0';  // abstract, unix(7)
    const sys::UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket) return;
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
    // Blocks only while the manager's queue is full, which is its business.
    static_cast<void>(sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL,
                             reinterpret_cast<const sockaddr*>(&address), size));
}

Result<std::vector<sys::UniqueFd>> take_listeners()
{
    // All of them gone before anything else: children must not take them for theirs.
    const auto pid = number_in("LISTEN_PID");
    const auto count = number_in("LISTEN_FDS");
    for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) unsetenv(name);
    std::vector<sys::UniqueFd> listeners;
    // Meant for another process, of which we are a child.
    if (!pid || !count || *pid != getpid()) return listeners;
    if (*count < 1 || *count > kMostListeners) {
        return fail(Code::invalid_argument, "LISTEN_FDS: " + std::to_string(*count) + " sockets");
    }
    for (int i = 0; i < static_cast<int>(*count); ++i) {
        // To a number of our own with close-on-exec: the manager passes them without.
        auto fd = TRY(sys::duplicate(kFirstListener + i, kFirstListener));
        sys::close_number(kFirstListener + i);
        int listens = 0;
        socklen_t size = sizeof listens;
        // Asked of the kernel: a number in the environment proves nothing.
        if (getsockopt(fd.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) {
            return fail(Code::invalid_argument, "LISTEN_FDS: descriptor " +
                                                    std::to_string(kFirstListener + i) +
                                                    " is no listening socket");
        }
        listeners.push_back(std::move(fd));
    }
    return listeners;
}

std::optional<Millis> watchdog_interval()
{
    // WATCHDOG_PID may be missing: then it is for us.
    const auto usec = number_in("WATCHDOG_USEC");
    const auto pid = number_in("WATCHDOG_PID");
    if (!usec || *usec <= 0 || (pid && *pid != getpid())) return std::nullopt;
    // Microseconds to milliseconds, and half of it: sd_watchdog_enabled(3).
    return Millis(std::max(*usec / 2000, 1L));
}

}  // namespace sandbox::daemon
