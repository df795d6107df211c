// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "sys/deadline.hpp"
#include "sys/fd.hpp"

// The hybrid-vsock door of a sandbox, as Firecracker and Cloud Hypervisor do it: a unix stream
// socket on which a client writes "CONNECT <port>\n" and reads "OK <n>\n"; frames follow.
namespace sandbox::channel {

inline constexpr const char* kDoorName = "v.sock";
inline constexpr std::size_t kLongestLine = 32;  // Firecracker's muxer reads no more
// Assigned ports have bit 30 set there; ours too, so that nobody takes <n> for the guest's port.
inline constexpr std::uint32_t kFirstAssignedPort = 1U << 30;

// <n> of a session says which it is and where its leaf lies; anybody else may take it for a number.
//   bit 30 set, bits 9 to 29 the session's number, bits 0 to 8 the leaf's slot.
std::uint32_t assigned_port(std::uint32_t session, std::uint32_t slot) noexcept;
struct Assigned {
    std::uint32_t session = 0;
    std::uint32_t slot = 0;
};
Assigned take_apart(std::uint32_t assigned) noexcept;

// "CONNECT 5001\n": the word in any case, one space, decimal without sign or leading zero, a u32.
// Nothing for anything else.
std::optional<std::uint32_t> parse_connect(std::string_view line) noexcept;
std::string connected_line(std::uint32_t assigned);

// Client side: connects, asks for the port and waits for OK. A door that closes instead means that
// nobody listens on that port: Code::unavailable. `assigned` becomes <n>.
[[nodiscard]] Result<sys::UniqueFd> connect(const std::string& door, std::uint32_t port,
                                            sys::Deadline deadline,
                                            std::uint32_t* assigned = nullptr);

// Server side: collects the first line of one accepted connection without reading past it.
class Knock {
public:
    explicit Knock(sys::UniqueFd socket) : socket_(std::move(socket)) {}

    enum class State { waiting, connected, refused };
    // Call when readable. After `connected`, port() is set and take() gives the stream.
    State read_more();
    int fd() const noexcept { return socket_.get(); }
    std::uint32_t port() const noexcept { return port_; }
    sys::UniqueFd take() noexcept { return std::move(socket_); }

private:
    sys::UniqueFd socket_;
    std::string line_;
    std::uint32_t port_ = 0;
};

}  // namespace sandbox::channel
