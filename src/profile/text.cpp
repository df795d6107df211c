// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bitset>
#include <charconv>
#include <cstdio>

#include "base/diagnostic.hpp"
#include "base/utf8.hpp"
#include "profile/check.hpp"

namespace sandbox::profile {

namespace {

constexpr std::size_t kMostLabelBytes = 63;  // RFC 1035 section 2.3.4
constexpr std::size_t kMostCpus = 8192;      // CONFIG_NR_CPUS with MAXSMP

using CpuSet = std::bitset<kMostCpus>;

std::string in_short_quotes(std::string_view text)
{
    // Bytes of a name in a message; the key says which it is.
    constexpr std::size_t kMost = 80;
    if (text.size() <= kMost) return "\"" + escaped(text) + "\"";
    return "\"" + escaped(text.substr(0, kMost)) + "…\"";
}

// "U+0430", and the letter it can be taken for: the two look alike in the very message that names
// them.
std::string character_name(char32_t c)
{
    struct LookAlike {
        char32_t character;
        char looks;
        std::string_view script;
    };
    // The Cyrillic and Greek letters that most fonts draw like Latin ones.
    static constexpr LookAlike kLookAlikes[] = {
        {0x0430, 'a', "Cyrillic"}, {0x0441, 'c', "Cyrillic"}, {0x0435, 'e', "Cyrillic"},
        {0x0456, 'i', "Cyrillic"}, {0x0458, 'j', "Cyrillic"}, {0x043E, 'o', "Cyrillic"},
        {0x0440, 'p', "Cyrillic"}, {0x0455, 's', "Cyrillic"}, {0x0445, 'x', "Cyrillic"},
        {0x0443, 'y', "Cyrillic"}, {0x0501, 'd', "Cyrillic"}, {0x04BB, 'h', "Cyrillic"},
        {0x03BF, 'o', "Greek"},    {0x03BD, 'v', "Greek"},    {0x03C1, 'p', "Greek"},
        {0x2010, '-', "hyphen"},   {0x2011, '-', "hyphen"},   {0x2013, '-', "dash"},
        {0x2212, '-', "minus"}};
    // "U+10FFFF" and the NUL fit.
    std::array<char, 16> code{};
    std::snprintf(code.data(), code.size(), "U+%04X", static_cast<unsigned>(c));
    std::string name = code.data();
    for (const LookAlike& known : kLookAlikes) {
        if (known.character != c) continue;
        return name + " (" + std::string(known.script) + ", looks like '" + known.looks + "')";
    }
    return name;
}

std::string first_wrong_character(std::string_view text, std::size_t at)
{
    const Utf8Char c = decode_utf8(text.substr(at));
    std::size_t count = 1;  // characters as a person counts them, not bytes
    for (std::size_t i = 0; i < at; ++count) {
        i += std::max<std::size_t>(1, decode_utf8(text.substr(i)).length);
    }
    const std::string where = ", character " + std::to_string(count);
    if (c.length == 0) return "a byte that is not UTF-8" + where;
    if (c.value < 0x20 || c.value == 0x7F) {
        // By number as well: a control character cannot be seen.
        return "the control character " + character_name(c.value) + where;
    }
    if (c.value < 0x80) return "'" + std::string(1, text[at]) + "'" + where;
    return character_name(c.value) + where;
}

std::optional<CpuSet> parse_cpuset(std::string_view text)
{
    // A set forgives order and repetition; only the form is strict.
    CpuSet set;
    const auto number = [&]() -> std::optional<std::size_t> {
        std::size_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        // No white space, sign or leading "0x": from_chars takes none of them.
        if (error != std::errc{} || value >= kMostCpus) return std::nullopt;
        text.remove_prefix(static_cast<std::size_t>(end - text.data()));
        return value;
    };
    while (true) {
        const auto first = number();
        if (!first) return std::nullopt;
        auto last = first;
        if (text.starts_with('-')) {
            text.remove_prefix(1);
            last = number();
        }
        if (!last || *last < *first) return std::nullopt;
        // At most 8192 rounds for each part; the text's length bounds the parts.
        for (std::size_t cpu = *first; cpu <= *last; ++cpu) set.set(cpu);
        // An empty text is no list: number() has refused it. No CPU at all would be no sandbox.
        if (text.empty()) return set;
        if (text.front() != ',') return std::nullopt;
        text.remove_prefix(1);
    }
}

}  // namespace

std::optional<Flaw> flaw_in_label(std::string_view text)
{
    const std::string hint = "1 to 63 lower-case letters, digits and inner hyphens";
    if (text.empty()) return Flaw{"empty-value", "must not be empty", hint};
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-') continue;
        return Flaw{"bad-name", in_short_quotes(text) + " has " + first_wrong_character(text, i),
                    hint};
    }
    // After the characters: bytes and characters are the same then.
    if (text.size() > kMostLabelBytes) {
        return Flaw{"bad-name", "has " + std::to_string(text.size()) + " characters, at most 63",
                    hint};
    }
    if (text.front() == '-' || text.back() == '-') {
        return Flaw{"bad-name", in_short_quotes(text) + " begins or ends with '-'", hint};
    }
    return std::nullopt;
}

std::optional<Flaw> flaw_in_text(std::string_view text)
{
    for (std::size_t i = 0; i < text.size();) {
        const Utf8Char c = decode_utf8(text.substr(i));
        // C0, DEL and C1 (ISO 6429): what could steer a terminal.
        const bool wrong = c.length == 0 || c.value < 0x20 || (c.value >= 0x7F && c.value < 0xA0);
        if (wrong) {
            return Flaw{"control-character",
                        in_short_quotes(text) + " has " + first_wrong_character(text, i),
                        {}};
        }
        i += c.length;
    }
    return std::nullopt;
}

std::optional<Flaw> flaw_in_path(std::string_view text)
{
    if (text.empty()) return Flaw{"bad-path", "must not be empty", {}};
    if (text.size() > kMostPathBytes) {
        return Flaw{"bad-path", "a path has at most 4095 bytes", {}};
    }
    if (text.front() != '/') {
        return Flaw{"bad-path", in_short_quotes(text) + " is relative",
                    "write it from the root, with '/' first"};
    }
    // Before it is cut into parts: an error in it is then shown in its own words.
    if (auto flaw = flaw_in_text(text)) return flaw;
    if (text == "/") return std::nullopt;
    for (std::size_t begin = 1; begin <= text.size();) {
        const std::size_t end = std::min(text.find('/', begin), text.size());
        const std::string_view part = text.substr(begin, end - begin);
        if (part.empty()) {
            // Each place has one name: whatever compares paths compares bytes.
            return Flaw{"bad-path", in_short_quotes(text) + " has '//' or ends with '/'",
                        "write each '/' once"};
        }
        // "..": what it leads to depends on links, so the path that was checked need not be the one
        // that is opened.
        if (part == "." || part == "..") {
            return Flaw{"bad-path",
                        in_short_quotes(text) + " has '" + std::string(part) + "' in it",
                        "write the path that is meant"};
        }
        if (part.size() > 255) {  // linux/limits.h NAME_MAX
            return Flaw{"bad-path", "a part between two '/' has at most 255 bytes", {}};
        }
        begin = end + 1;
    }
    return std::nullopt;
}

std::optional<Flaw> flaw_in_env_name(std::string_view text)
{
    if (text.empty()) return Flaw{"empty-value", "a variable's name must not be empty", {}};
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        // Names with '.' and '-' are in use (build tools); only a shell cannot read them.
        const bool inner = (c >= '0' && c <= '9') || c == '.' || c == '-';
        if (letter || (inner && i > 0)) continue;
        return Flaw{"bad-name", in_short_quotes(text) + " has " + first_wrong_character(text, i),
                    "a letter or '_', then letters, digits, '_', '.' and '-'"};
    }
    // Ours, not the kernel's: it keeps messages short.
    if (text.size() > 256) return Flaw{"bad-name", "a variable's name has at most 256 bytes", {}};
    return std::nullopt;
}

std::optional<Flaw> flaw_in_capability(std::string_view text)
{
    const auto known = capability_names();
    if (std::find(known.begin(), known.end(), text) != known.end()) return std::nullopt;
    std::string upper;
    for (const char c : text) {
        upper += c >= 'a' && c <= 'z' ? static_cast<char>(c - ('a' - 'A')) : c;
    }
    // Compared without the prefix that all names share: it would make strangers look alike.
    if (upper.starts_with("CAP_")) upper.erase(0, 4);
    std::vector<std::string_view> bare;
    for (const std::string_view name : known) bare.push_back(name.substr(4));
    const std::string_view close = nearest(upper, bare);
    return Flaw{"bad-value", "no capability is named " + in_short_quotes(text),
                close.empty() ? "capabilities(7) lists the names"
                              : "did you mean \"CAP_" + std::string(close) + "\"?"};
}

std::optional<std::string> canonical_cpuset(std::string_view text)
{
    const auto set = parse_cpuset(text);
    if (!set) return std::nullopt;
    // By bits: order, repetition and overlap are gone by themselves.
    std::string out;
    for (std::size_t cpu = 0; cpu < kMostCpus; ++cpu) {
        if (!set->test(cpu)) continue;
        std::size_t last = cpu;
        while (last + 1 < kMostCpus && set->test(last + 1)) ++last;
        if (!out.empty()) out += ',';
        out += std::to_string(cpu);
        if (last > cpu) out += '-' + std::to_string(last);
        cpu = last;
    }
    return out;
}

bool cpuset_within(std::string_view inner, std::string_view outer)
{
    const auto a = parse_cpuset(inner);
    const auto b = parse_cpuset(outer);
    // Nothing that cannot be read is within anything.
    return a && b && (*a & ~*b).none();
}

SourceLocation locate(const Locations& where, std::string_view key)
{
    while (true) {
        const auto found = where.find(std::string(key));
        if (found != where.end()) return found->second;
        if (key.empty()) return {};
        // ".[" cuts a quoted name with dots in the middle; then the next round finds its table,
        // which is near enough for a person.
        const std::size_t cut = key.find_last_of(".[");
        key = key.substr(0, cut == std::string_view::npos ? 0 : cut);
    }
}

std::span<const std::string_view> capability_names() noexcept
{
    // linux/capability.h, up to CAP_LAST_CAP of Linux 6.12 (40, CAP_CHECKPOINT_RESTORE).
    static constexpr std::array<std::string_view, 41> kNames{
        "CAP_AUDIT_CONTROL",   "CAP_AUDIT_READ",   "CAP_AUDIT_WRITE",
        "CAP_BLOCK_SUSPEND",   "CAP_BPF",          "CAP_CHECKPOINT_RESTORE",
        "CAP_CHOWN",           "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH",
        "CAP_FOWNER",          "CAP_FSETID",       "CAP_IPC_LOCK",
        "CAP_IPC_OWNER",       "CAP_KILL",         "CAP_LEASE",
        "CAP_LINUX_IMMUTABLE", "CAP_MAC_ADMIN",    "CAP_MAC_OVERRIDE",
        "CAP_MKNOD",           "CAP_NET_ADMIN",    "CAP_NET_BIND_SERVICE",
        "CAP_NET_BROADCAST",   "CAP_NET_RAW",      "CAP_PERFMON",
        "CAP_SETFCAP",         "CAP_SETGID",       "CAP_SETPCAP",
        "CAP_SETUID",          "CAP_SYSLOG",       "CAP_SYS_ADMIN",
        "CAP_SYS_BOOT",        "CAP_SYS_CHROOT",   "CAP_SYS_MODULE",
        "CAP_SYS_NICE",        "CAP_SYS_PACCT",    "CAP_SYS_PTRACE",
        "CAP_SYS_RAWIO",       "CAP_SYS_RESOURCE", "CAP_SYS_TIME",
        "CAP_SYS_TTY_CONFIG",  "CAP_WAKE_ALARM"};
    return kNames;
}

std::span<const std::string_view> rlimit_names() noexcept
{
    // Those of Linux (RLIMIT_* of setrlimit(2)); RLIM_NLIMITS is 16.
    static constexpr std::array<std::string_view, 16> kNames{
        "as",   "core",   "cpu",   "data", "fsize",  "locks",  "memlock",    "msgqueue",
        "nice", "nofile", "nproc", "rss",  "rtprio", "rttime", "sigpending", "stack"};
    return kNames;
}

}  // namespace sandbox::profile
