// SPDX-License-Identifier: Apache-2.0
#include "channel/door.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include "channel/frame_stream.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::channel {

std::optional<std::uint32_t> parse_connect(std::string_view line) noexcept
{
    constexpr std::string_view kWord = "CONNECT ";
    if (line.size() <= kWord.size() || line.size() > kLongestLine || line.back() != '\n') {
        return std::nullopt;
    }
    // In any case, as the peers that gave this line its form read it.
    const auto upper = [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; };
    if (!std::ranges::equal(line.substr(0, kWord.size()), kWord, {}, upper)) return std::nullopt;
    const std::string_view digits = line.substr(kWord.size(), line.size() - kWord.size() - 1);
    if (digits.empty() || (digits.size() > 1 && digits.front() == '0')) return std::nullopt;
    std::uint32_t port = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
    return port;
}

std::string connected_line(std::uint32_t assigned)
{
    return "OK " + std::to_string(assigned) + "\n";
}

namespace {

constexpr unsigned kSlotBits = 9;
constexpr unsigned kNumberBits = 21;

}  // namespace

std::uint32_t assigned_port(std::uint32_t session, std::uint32_t slot) noexcept
{
    return kFirstAssignedPort | (session & ((1U << kNumberBits) - 1)) << kSlotBits |
           (slot & ((1U << kSlotBits) - 1));
}

Assigned take_apart(std::uint32_t assigned) noexcept
{
    return {(assigned & (kFirstAssignedPort - 1)) >> kSlotBits, assigned & ((1U << kSlotBits) - 1)};
}

namespace {

// One byte at a time: what follows the line belongs to the stream's own reader.
Result<std::string> read_line(int socket, sys::Deadline deadline)
{
    std::string line;
    while (line.size() < kLongestLine) {
        std::array<std::byte, 1> byte{};
        const std::size_t count = TRY(receive_bytes(socket, byte, deadline));
        if (count == 0) return line;
        line += static_cast<char>(byte[0]);
        if (line.back() == '\n') return line;
    }
    return fail(Code::corrupt, "the door answered with a line that does not end");
}

}  // namespace

Result<sys::UniqueFd> connect(const std::string& door, std::uint32_t port, sys::Deadline deadline,
                              std::uint32_t* assigned)
{
    auto socket = TRY(sys::unix_connect(door, sys::SocketType::stream));
    const std::string request = "CONNECT " + std::to_string(port) + "\n";
    TRY_VOID(send_bytes(socket.get(), std::as_bytes(std::span(request)), {}));
    const std::string line = TRY(read_line(socket.get(), deadline));
    if (line.empty()) {
        return fail(Code::unavailable, "nothing listens on port " + std::to_string(port));
    }
    std::uint32_t number = 0;
    const char* end = line.data() + line.size() - 1;
    if (!line.starts_with("OK ") || *end != '\n' ||
        std::from_chars(line.data() + 3, end, number).ptr != end) {
        return fail(Code::corrupt, "the door answered something that is not OK");
    }
    if (assigned != nullptr) *assigned = number;
    return socket;
}

Knock::State Knock::read_more()
{
    while (true) {
        char byte = 0;
        const ssize_t count = recv(socket_.get(), &byte, 1, MSG_DONTWAIT);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno == EAGAIN) return State::waiting;
        if (count <= 0) return State::refused;
        line_ += byte;
        if (byte == '\n') break;
        if (line_.size() >= kLongestLine) return State::refused;
    }
    const auto port = parse_connect(line_);
    if (!port) return State::refused;
    port_ = *port;
    return State::connected;
}

}  // namespace sandbox::channel
