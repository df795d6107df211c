// SPDX-License-Identifier: Apache-2.0
#include "policy/pattern.hpp"

#include <algorithm>
#include <array>

#include "profile/protected.hpp"

namespace sandbox::policy {

namespace {

// Both in canonical form (profile::canonical_host), so bytes decide.
bool covers_host(std::string_view outer, std::string_view inner)
{
    if (outer == inner) return true;
    if (!outer.starts_with("*.")) return false;
    // "*.a.com" stands for every name below a.com and not for a.com itself.
    const std::string_view suffix = outer.substr(1);
    // The pattern's own dot stays: ".b.a.com" is longer than ".a.com", and "*.a.com" was equal
    // above.
    if (inner.starts_with("*.")) inner.remove_prefix(1);
    return inner.size() > suffix.size() && inner.ends_with(suffix);
}

bool covers_user(std::string_view outer, std::string_view inner)
{
    if (outer == "*" || outer == inner) return true;
    if (!outer.ends_with(":*")) return false;
    // With the colon: "100:*" must not cover "1000:1".
    return inner.starts_with(outer.substr(0, outer.size() - 1));
}

// Fixed widths, as RFC 3339, section 5.6, has them; from_chars would take "1" for a month.
std::optional<unsigned> take(std::string_view& text, std::size_t digits)
{
    if (text.size() < digits) return std::nullopt;
    unsigned value = 0;
    for (const char c : text.substr(0, digits)) {
        if (c < '0' || c > '9') return std::nullopt;
        value = value * 10 + static_cast<unsigned>(c - '0');
    }
    text.remove_prefix(digits);
    return value;
}

bool skip(std::string_view& text, char wanted)
{
    if (!text.starts_with(wanted)) return false;
    text.remove_prefix(1);
    return true;
}

bool take_date(std::string_view& text)
{
    // February has 29 here; the last line takes the day back where the year is not a leap year.
    static constexpr std::array<unsigned, 12> kDays{31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const auto year = take(text, 4);
    if (!year || !skip(text, '-')) return false;
    const auto month = take(text, 2);
    if (!month || *month < 1 || *month > 12 || !skip(text, '-')) return false;
    const auto day = take(text, 2);
    if (!day || *day < 1 || *day > kDays.at(*month - 1)) return false;
    const bool leap = *year % 4 == 0 && (*year % 100 != 0 || *year % 400 == 0);
    return *month != 2 || *day < 29 || leap;
}

bool take_clock(std::string_view& text)
{
    const auto hour = take(text, 2);
    if (!hour || *hour > 23 || !skip(text, ':')) return false;
    const auto minute = take(text, 2);
    return minute && *minute <= 59;
}

}  // namespace

bool covers(Kind kind, std::string_view outer, std::string_view inner)
{
    switch (kind) {
    // A word stands for itself only.
    case Kind::word: return outer == inner;
    case Kind::path: return profile::is_path_prefix(outer, inner);
    case Kind::host: return covers_host(outer, inner);
    case Kind::user: return covers_user(outer, inner);
    }
    return false;
}

bool permits(Kind kind, const PermittedSet& set, std::string_view value)
{
    if (!set) return true;
    return std::any_of(set->begin(), set->end(),
                       [&](const std::string& member) { return covers(kind, member, value); });
}

PermittedSet meet(Kind kind, const PermittedSet& a, const PermittedSet& b)
{
    // Absent is the greatest element: the meet of two of them limits nothing.
    if (!a && !b) return std::nullopt;
    // Of two members that overlap one covers the other: the smaller is what both permit.
    std::set<std::string> both;
    for (const std::string& member : a ? *a : *b) {
        // An absent set permits each member, so one loop serves for one side absent, too.
        if (permits(kind, b, member)) both.insert(member);
    }
    if (a && b) {
        for (const std::string& member : *b) {
            if (permits(kind, a, member)) both.insert(member);
        }
    }
    // Without what others cover: "/srv" and "/srv/a" mean the same as "/srv", and the digest is of
    // the meaning.
    std::set<std::string> least;
    for (const std::string& member : both) {
        const bool covered = std::any_of(both.begin(), both.end(), [&](const std::string& other) {
            // Covering is antisymmetric for distinct members, so two cannot throw each other out.
            return other != member && covers(kind, other, member);
        });
        if (!covered) least.insert(member);
    }
    return least;
}

bool is_rfc3339(std::string_view text) noexcept
{
    if (!take_date(text)) return false;
    // full-date alone, without a time of day.
    if (text.empty()) return true;
    if (!skip(text, 'T') || !take_clock(text) || !skip(text, ':')) return false;
    const auto second = take(text, 2);
    if (!second || *second > 60) return false;  // 60: a leap second
    if (skip(text, '.')) {
        // At least one digit, any number of them (RFC 3339, "time-secfrac").
        const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
        if (end == 0) return false;
        text.remove_prefix(end);
    }
    // Upper case only, and an offset always: a local time would mean another moment on every host.
    if (text == "Z") return true;
    if (!skip(text, '+') && !skip(text, '-')) return false;
    return take_clock(text) && text.empty();
}

}  // namespace sandbox::policy
