// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "profile/types.hpp"

// Spellings shared by the TOML reader and the normal form. Pure; what parse_*() returns, format_*()
// writes back in one canonical way.
namespace sandbox::profile {

std::string format_user(User user);  // "1000:1000"
std::string format_mode(std::uint32_t);  // "0022", four octal digits

// "1000:1000" or "1000" (the gid is then the same number). Nothing for names, signs, leading
// zeros, white space and 4294967295, which the kernel reads as "no id".
std::optional<User> parse_user(std::string_view text) noexcept;

// One to four octal digits, at most `most`. Nothing for "0o22", signs and white space.
std::optional<std::uint32_t> parse_mode(std::string_view text, std::uint32_t most) noexcept;

// "host", "dir:/path", "image:reference". Only the kind is read: whether the path is normal and the
// reference not empty is check()'s business.
std::string format_rootfs(const Rootfs& rootfs);
std::optional<Rootfs> parse_rootfs(std::string_view text);

// "127.0.0.1:8080", "[::1]:8080"; the address is canonical, the port 1..65535.
struct HostPort {
    std::string address;
    std::uint16_t port = 0;
};
// Brackets around IPv6, as parse_host_port() wants them.
std::string format_host_port(const std::string& address, std::uint16_t port);
std::optional<HostPort> parse_host_port(std::string_view text);

}  // namespace sandbox::profile
