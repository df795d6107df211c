// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>

#include "fuzz.hpp"
#include "profile/host.hpp"

// Host names and destinations against the C library's parsers: one canonical form, the same
// address, and nothing that inet_aton() reads as an address passes for a name.
namespace sandbox::fuzz {

namespace {

template <class Address>
std::optional<std::string> by_libc(int family, const std::string& text)
{
    Address address{};
    if (inet_pton(family, text.c_str(), &address) != 1) return std::nullopt;
    return std::string(reinterpret_cast<const char*>(&address), sizeof address);
}

std::optional<std::string> address_of(const std::string& text)
{
    if (auto v4 = by_libc<in_addr>(AF_INET, text)) return v4;
    return by_libc<in6_addr>(AF_INET6, text);
}

void check_host(const std::string& text)
{
    const bool has_nul = text.find('\0') != std::string::npos;
    const auto ip = profile::canonical_ip(text);
    if (ip) {
        HOLDS(!has_nul && address_of(text).has_value());
        HOLDS(address_of(*ip) == address_of(text));
        HOLDS(profile::canonical_ip(*ip) == *ip);
    }
    const auto host = profile::canonical_host(text);
    if (!host) return;
    HOLDS(host->size() <= 253 && !host->ends_with('.'));
    HOLDS(host->find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_.:*") ==
          std::string::npos);
    HOLDS(host->rfind('*') == std::string::npos || (host->rfind('*') == 0 && host->size() > 2));
    const auto again = profile::canonical_host(*host);
    HOLDS(again.has_value() && *again == *host);
    HOLDS(ip ? *host == *ip : host->find(':') == std::string::npos);
    // "127.1", "0x7f.1", "2130706433", "010.0.0.1": two readings, so refused unless dotted decimal.
    in_addr loose{};
    HOLDS(ip || inet_aton(text.c_str(), &loose) == 0);
}

}  // namespace

FUZZ_TARGET(host)
{
    const std::string text(input);
    check_host(text);
    const auto destination = profile::parse_destination(text);
    if (!destination) return;
    check_host(destination->host);
    HOLDS(profile::canonical_host(destination->host) == destination->host);
    const bool v6 = destination->host.find(':') != std::string::npos;
    const std::string port = destination->port ? std::to_string(*destination->port) : "*";
    const auto again = profile::parse_destination(
        (v6 ? "[" + destination->host + "]" : destination->host) + ":" + port);
    HOLDS(again.has_value() && again->host == destination->host &&
          again->port == destination->port);
    HOLDS(destination->port != 0);
}

}  // namespace sandbox::fuzz
