// SPDX-License-Identifier: Apache-2.0
#include "profile/host.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/utf8.hpp"

namespace sandbox::profile {

namespace {

constexpr std::size_t kMostNameBytes = 253;  // RFC 1035 section 2.3.4, without the final dot
constexpr std::size_t kMostLabelBytes = 63;  // the same

using Ipv6 = std::array<std::uint16_t, 8>;

// std::isdigit() depends on the locale and is undefined for negative values.
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Strict dotted decimal (RFC 6943, section 3.1.1 lists the other readings and what went wrong).
std::optional<std::array<std::uint8_t, 4>> parse_ipv4(std::string_view text)
{
    std::array<std::uint8_t, 4> bytes{};
    for (std::size_t i = 0; i < 4; ++i) {
        // The last part ends with the text; more than three digits cannot be a byte.
        const std::size_t dot = i < 3 ? text.find('.') : text.size();
        if (dot == std::string_view::npos || dot == 0 || dot > 3) return std::nullopt;
        const std::string_view part = text.substr(0, dot);
        // "010" is eight to some parsers and ten to others.
        if (part.size() > 1 && part.front() == '0') return std::nullopt;
        unsigned value = 0;
        const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
        if (error != std::errc{} || end != part.data() + part.size() || value > 255) {
            return std::nullopt;
        }
        bytes.at(i) = static_cast<std::uint8_t>(value);
        // Also for the last part, where there is no dot.
        text.remove_prefix(std::min(text.size(), dot + 1));
    }
    return bytes;
}

// The groups between "::" and an end; the last may be an IPv4 address.
std::optional<std::vector<std::uint16_t>> parse_groups(std::string_view text, bool last_part)
{
    std::vector<std::uint16_t> groups;
    if (text.empty()) return groups;
    while (true) {
        const std::size_t colon = text.find(':');
        // substr(0, npos) is the rest.
        const std::string_view part = text.substr(0, colon);
        // Only as the last 32 bits (RFC 4291, section 2.2, form 3).
        if (colon == std::string_view::npos && last_part && part.find('.') != part.npos) {
            const auto v4 = parse_ipv4(part);
            if (!v4) return std::nullopt;
            groups.push_back(static_cast<std::uint16_t>((*v4)[0] << 8 | (*v4)[1]));
            groups.push_back(static_cast<std::uint16_t>((*v4)[2] << 8 | (*v4)[3]));
            return groups;
        }
        std::uint16_t value = 0;
        // from_chars takes no sign for an unsigned type and no "0x" with base 16.
        const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value,
                                                  16);
        if (part.empty() || part.size() > 4 || error != std::errc{} ||
            end != part.data() + part.size()) {
            return std::nullopt;
        }
        groups.push_back(value);
        if (colon == std::string_view::npos) return groups;
        text.remove_prefix(colon + 1);
    }
}

std::optional<Ipv6> parse_ipv6(std::string_view text)
{
    Ipv6 address{};
    const std::size_t gap = text.find("::");
    if (gap == std::string_view::npos) {
        const auto all = parse_groups(text, true);
        if (!all || all->size() != address.size()) return std::nullopt;
        std::copy(all->begin(), all->end(), address.begin());
        return address;
    }
    // Twice would leave open how many zeros each stands for.
    if (text.find("::", gap + 1) != std::string_view::npos) return std::nullopt;
    const auto head = parse_groups(text.substr(0, gap), false);
    const auto tail = parse_groups(text.substr(gap + 2), true);
    // At least one group must be left for "::" to stand for (RFC 5952, 4.2.2, wants two; reading is
    // kinder than writing).
    if (!head || !tail || head->size() + tail->size() > address.size() - 1) return std::nullopt;
    std::copy(head->begin(), head->end(), address.begin());
    std::copy_backward(tail->begin(), tail->end(), address.end());
    return address;
}

std::string hex_group(std::uint16_t value)
{
    std::array<char, 4> buffer{};
    const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, 16).ptr;
    return {buffer.data(), end};
}

// RFC 5952 section 4: lower case, no leading zeros, the longest (then first) run of at least two
// zero groups as "::".
std::string format_ipv6(const Ipv6& address)
{
    // A run of one is written as "0" (RFC 5952, section 4.2.2).
    std::size_t best = 0;
    std::size_t best_length = 1;
    for (std::size_t i = 0; i < address.size();) {
        std::size_t length = 0;
        while (i + length < address.size() && address.at(i + length) == 0) ++length;
        // Greater, not equal: the first of equal runs wins (section 4.2.3).
        if (length > best_length) {
            best = i;
            best_length = length;
        }
        i += std::max<std::size_t>(length, 1);
    }
    std::string text;
    for (std::size_t i = 0; i < address.size(); ++i) {
        if (best_length > 1 && i == best) {
            text += "::";
            i += best_length - 1;
            continue;
        }
        // After "::" the separator is there already.
        if (!text.empty() && text.back() != ':') text += ':';
        text += hex_group(address.at(i));
    }
    return text;
}

// With the host first: the caller has many.
std::unexpected<Error> refused(std::string_view host, std::string_view why)
{
    return fail(Code::invalid_argument, "\"" + escaped(host) + "\": " + std::string(why));
}

// Anything a resolver or a C library might read as a number: "0x7f.1", "127.1", "2130706433".
bool looks_numeric(std::string_view name)
{
    const std::size_t dot = name.rfind('.');
    std::string_view last = dot == std::string_view::npos ? name : name.substr(dot + 1);
    // inet_aton(3) reads hexadecimal parts; RFC 3696, section 2, has no all-digit top-level domain.
    if (last.starts_with("0x")) return true;
    return !last.empty() && std::all_of(last.begin(), last.end(), is_digit);
}

std::optional<std::string_view> flaw_in_dns_label(std::string_view label)
{
    if (label.empty()) return "an empty part between dots";
    if (label.size() > kMostLabelBytes) return "a part of more than 63 characters";
    if (label.front() == '-' || label.back() == '-') return "a part that begins or ends with '-'";
    for (const char c : label) {
        // Underscores are in use (service names, RFC 8552), and a resolver takes them.
        const bool good = (c >= 'a' && c <= 'z') || is_digit(c) || c == '-' || c == '_';
        if (!good) return "a character that no host name has";
    }
    return std::nullopt;
}

// `written` is for the message; `rest` is lower case already.
Status check_name(std::string_view written, std::string_view rest)
{
    // With its "*.": a name that it fits is at least as long.
    if (rest.size() > kMostNameBytes) return refused(written, "a name of more than 253 characters");
    if (rest.starts_with("*.")) rest.remove_prefix(2);
    if (rest == "*" || rest.empty()) {
        return refused(written, "every host at once is not a rule; name hosts or \"*.name\"");
    }
    if (rest.find('*') != rest.npos)
        return refused(written, "\"*\" may only stand first, as \"*.\"");
    // One name, one spelling: with the dot at the end it would be the same host by another name.
    if (rest.ends_with('.')) return refused(written, "leave the dot at the end out");
    // It would be dialled as an address that no rule has named.
    if (looks_numeric(rest)) {
        return refused(written, "an IPv4 address is written as four decimal numbers, \"10.0.0.1\"");
    }
    while (true) {
        const std::size_t dot = rest.find('.');
        if (const auto flaw = flaw_in_dns_label(rest.substr(0, dot)))
            return refused(written, *flaw);
        if (dot == std::string_view::npos) return {};
        rest.remove_prefix(dot + 1);
    }
}

}  // namespace

std::optional<std::string> canonical_ip(std::string_view text)
{
    if (parse_ipv4(text)) return std::string(text);
    const auto address = parse_ipv6(text);
    if (!address) return std::nullopt;
    return format_ipv6(*address);
}

Result<std::string> canonical_host(std::string_view host)
{
    if (host.empty()) return refused(host, "a host must not be empty");
    std::string name;
    for (const char c : host) {
        // Byte by byte, so that nothing is left for a parser further down to see differently.
        const auto byte = static_cast<unsigned char>(c);
        if (byte == 0) return refused(host, "a NUL character");
        if (byte < 0x21 || byte == 0x7F) return refused(host, "a space or control character");
        if (byte >= 0x80) {
            return refused(host, "a character outside ASCII; write the name as an A-label (xn--…)");
        }
        // "good.example@evil.example" names two hosts, and readers differ about which.
        if (c == '@') return refused(host, "user information has no place in a rule");
        // A zone id (RFC 4007) names an interface of one machine; "%2e" is a dot to some.
        if (c == '%') return refused(host, "percent signs (escapes, zone ids) are not read");
        if (c == '/') return refused(host, "a host is wanted, not a URL or a network");
        // Only parse_destination() takes them off, and both at once.
        if (c == '[' || c == ']')
            return refused(host, "brackets that do not enclose an IPv6 address");
        // Names are compared without case (RFC 4343); ASCII only, so no locale.
        name += c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
    }
    // First: an address must never be taken for a name.
    if (auto ip = canonical_ip(name)) {
        // "::ffff:10.0.0.1" would be dialled as 10.0.0.1: two names for one place.
        if (ip->starts_with("::ffff:")) return refused(host, "write the IPv4 address itself");
        return *std::move(ip);
    }
    if (name.find(':') != name.npos) return refused(host, "not an IPv6 address");
    // Lengths and characters of what is left, which can only be a name.
    TRY_VOID(check_name(host, name));
    return name;
}

Result<Destination> parse_destination(std::string_view text)
{
    Destination destination;
    std::string_view host;
    std::string_view port;
    if (text.find("://") != text.npos) return refused(text, "wants HOST:PORT, not a URL");
    if (text.starts_with('[')) {
        const std::size_t close = text.find(']');
        if (close == text.npos || text.substr(close + 1, 1) != ":") {
            return refused(text, "wants [IPV6]:PORT");
        }
        host = text.substr(1, close - 1);
        port = text.substr(close + 2);
        if (host.find(':') == host.npos) return refused(text, "brackets enclose an IPv6 address");
    } else {
        // The last colon: a port has none.
        const std::size_t colon = text.rfind(':');
        if (colon == text.npos) return refused(text, "wants HOST:PORT, or HOST:* for every port");
        host = text.substr(0, colon);
        port = text.substr(colon + 1);
        // Without brackets the port could be a group of the address.
        if (host.find(':') != host.npos) {
            return refused(text, "an IPv6 address is written between brackets, [2001:db8::1]:443");
        }
    }
    destination.host = TRY(canonical_host(host));
    if (port == "*") return destination;
    std::uint16_t number = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    // "080" is a port to some parsers and octal to others.
    if (error != std::errc{} || end != port.data() + port.size() || number == 0 ||
        port.front() == '0') {
        return refused(text, "wants a port from 1 to 65535, or \"*\"");
    }
    destination.port = number;
    return destination;
}

}  // namespace sandbox::profile
