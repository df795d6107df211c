// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

// One canonical form for a network destination: what a rule names and what is dialled are then
// compared as bytes. Everything with two readings is refused, never repaired. Pure: no name is
// resolved.
namespace sandbox::profile {

// "api.example.com", "*.example.com" (only a leading "*."), "10.0.0.1", "2001:db8::1". Upper case
// becomes lower case, IPv6 becomes RFC 5952; user info, octal or hexadecimal IPv4, a trailing dot,
// NUL, "%", the bare "*" and non-ASCII names are refused. Code::invalid_argument with the reason,
// escaped for a terminal.
[[nodiscard]] Result<std::string> canonical_host(std::string_view host);

// Dotted decimal or RFC 5952 text; nothing when `text` is no IP literal in a readable form.
std::optional<std::string> canonical_ip(std::string_view text);

// Host in canonical form.
struct Destination {
    std::string host;
    std::optional<std::uint16_t> port;  // nothing: "*", every port
};
// "HOST:PORT", "HOST:*", "[IPV6]:PORT"; invalid_argument for anything else, URLs among it.
[[nodiscard]] Result<Destination> parse_destination(std::string_view text);

}  // namespace sandbox::profile
