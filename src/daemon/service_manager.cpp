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
constexpr long kMostListeners = 16;

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
    if (path == nullptr || (path[0] != '/' && path[0] != '@')) return;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::size_t length = std::strlen(path);
    if (length >= sizeof address.sun_path) return;
    std::memcpy(address.sun_path, path, length);
    if (path[0] == '@') address.sun_path[0] = '\0';  // abstract, unix(7)
    const sys::UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket) return;
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
    static_cast<void>(sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL,
                             reinterpret_cast<const sockaddr*>(&address), size));
}

Result<std::vector<sys::UniqueFd>> take_listeners()
{
    const auto pid = number_in("LISTEN_PID");
    const auto count = number_in("LISTEN_FDS");
    for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) unsetenv(name);
    std::vector<sys::UniqueFd> listeners;
    if (!pid || !count || *pid != getpid()) return listeners;
    if (*count < 1 || *count > kMostListeners) {
        return fail(Code::invalid_argument, "LISTEN_FDS: " + std::to_string(*count) + " sockets");
    }
    for (int i = 0; i < static_cast<int>(*count); ++i) {
        auto fd = TRY(sys::duplicate(kFirstListener + i, kFirstListener));
        sys::close_number(kFirstListener + i);
        int listens = 0;
        socklen_t size = sizeof listens;
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
    const auto usec = number_in("WATCHDOG_USEC");
    const auto pid = number_in("WATCHDOG_PID");
    if (!usec || *usec <= 0 || (pid && *pid != getpid())) return std::nullopt;
    return Millis(std::max(*usec / 2000, 1L));
}

}  // namespace sandbox::daemon
