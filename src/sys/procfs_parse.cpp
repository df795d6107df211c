// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <optional>

#include "sys/procfs.hpp"

namespace sandbox::sys {

namespace {

// Ceilings against a hostile or broken file; far above what the kernel prints.
constexpr std::size_t kMaxItems = 65536;
constexpr std::size_t kMaxIdMapLines = 340;  // user_namespaces(7)

std::unexpected<Error> corrupt(std::string what) { return fail(Code::corrupt, std::move(what)); }

template <class T>
std::optional<T> number(std::string_view text, int base = 10)
{
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    // The whole word: "12x" is no number.
    if (error != std::errc{} || end != text.data() + text.size() || text.empty())
        return std::nullopt;
    return value;
}

// Takes the part before `separator` and moves past it; the rest when there is none.
std::string_view take(std::string_view& text, char separator)
{
    const auto at = text.find(separator);
    const std::string_view part = text.substr(0, at);
    text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
    return part;
}

// Words between any number of blanks and tabs.
std::vector<std::string_view> words(std::string_view text)
{
    std::vector<std::string_view> found;
    for (;;) {
        const auto begin = text.find_first_not_of(" \t");
        // Bounded, like every list here.
        if (begin == std::string_view::npos || found.size() == kMaxItems) return found;
        text.remove_prefix(begin);
        const auto end = std::min(text.find_first_of(" \t"), text.size());
        found.push_back(text.substr(0, end));
        text.remove_prefix(end);
    }
}

std::vector<std::string> split(std::string_view text, char separator)
{
    std::vector<std::string> parts;
    while (!text.empty()) parts.emplace_back(take(text, separator));
    return parts;
}

template <class T, std::size_t N>
bool read_words(std::string_view text, std::array<T, N>& into)
{
    const auto found = words(text);
    if (found.size() != N) return false;
    for (std::size_t at = 0; at < N; ++at) {
        const auto value = number<T>(found[at]);
        if (!value) return false;
        into[at] = *value;
    }
    return true;
}

template <class T>
bool read_list(std::string_view text, std::vector<T>& into)
{
    for (const std::string_view word : words(text)) {
        const auto value = number<T>(word);
        if (!value) return false;
        into.push_back(*value);
    }
    return true;
}

template <class T>
bool read_one(std::string_view text, T& into, int base = 10)
{
    const auto value = number<T>(text, base);
    if (value) into = *value;
    return value.has_value();
}

// Which of the keys that must be there have been seen.
enum Seen : unsigned {
    kUid = 1,
    kGid = 2,
    kGroups = 4,
    kInh = 8,
    kPrm = 16,
    kEff = 32,
    kBnd = 64,
    kAmb = 128,
    kNnp = 256,
    kSeccomp = 512,
    kAllSeen = 1023
};

struct StatusReader {
    ProcStatus status;
    unsigned seen = 0;

    bool mark(unsigned key, bool good)
    {
        // A key twice means that a name with a newline forged a line: refused.
        if ((seen & key) != 0) return false;
        seen |= key;
        return good;
    }

    bool capability(std::string_view key, std::string_view value)
    {
        if (key == "CapInh") return mark(kInh, read_one(value, status.cap_inheritable, 16));
        if (key == "CapPrm") return mark(kPrm, read_one(value, status.cap_permitted, 16));
        if (key == "CapEff") return mark(kEff, read_one(value, status.cap_effective, 16));
        if (key == "CapBnd") return mark(kBnd, read_one(value, status.cap_bounding, 16));
        if (key == "CapAmb") return mark(kAmb, read_one(value, status.cap_ambient, 16));
        return true;
    }

    bool line(std::string_view key, std::string_view value)
    {
        if (key.starts_with("Cap")) return capability(key, value);
        if (key == "Uid") return mark(kUid, read_words(value, status.uid));
        if (key == "Gid") return mark(kGid, read_words(value, status.gid));
        if (key == "Groups") return mark(kGroups, read_list(value, status.groups));
        // Absent on kernels without the namespace; nothing that must be there.
        if (key == "NSpid") return read_list(value, status.ns_pid);
        if (key == "Umask") return read_one(value, status.umask, 8);
        if (key == "Threads") return read_one(value, status.threads);
        if (key == "Seccomp") return mark(kSeccomp, read_one(value, status.seccomp));
        if (key == "Seccomp_filters") return read_one(value, status.seccomp_filters);
        if (key == "NoNewPrivs") {
            status.no_new_privs = value == "1";
            // Marked only with one of the two values: a third would mean a kernel we do not know.
            return mark(kNnp, value == "0" || value == "1");
        }
        return true;
    }
};

std::string_view trimmed(std::string_view text)
{
    const auto begin = text.find_first_not_of(" \t");
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool is_octal(char digit) { return digit >= '0' && digit <= '7'; }

// mangle() in fs/proc_namespace.c writes blank, tab, newline, backslash and '#' as \ooo.
std::string unescape(std::string_view text)
{
    std::string plain;
    plain.reserve(text.size());
    for (std::size_t at = 0; at < text.size(); ++at) {
        // Only a whole escape: a lone backslash cannot come from the kernel and stays as it is.
        if (text[at] == '\\' && at + 3 < text.size() && is_octal(text[at + 1]) &&
            is_octal(text[at + 2]) && is_octal(text[at + 3])) {
            const int value = (text[at + 1] - '0') * 64 + (text[at + 2] - '0') * 8 +
                              (text[at + 3] - '0');
            plain += static_cast<char>(value);
            at += 3;
        } else {
            plain += text[at];
        }
    }
    return plain;
}

std::optional<MountInfo> mount_line(std::string_view line)
{
    MountInfo mount;
    const auto id = number<std::uint64_t>(take(line, ' '));
    const auto parent = number<std::uint64_t>(take(line, ' '));
    std::string_view device = take(line, ' ');
    const auto major = number<std::uint32_t>(take(device, ':'));
    const auto minor = number<std::uint32_t>(device);
    if (!id || !parent || !major || !minor) return std::nullopt;
    mount.id = *id;
    mount.parent = *parent;
    mount.major = *major;
    mount.minor = *minor;
    mount.root = unescape(take(line, ' '));
    mount.target = unescape(take(line, ' '));
    mount.options = split(take(line, ' '), ',');
    // Any number of optional fields, ended by a hyphen, proc_pid_mountinfo(5).
    for (;;) {
        if (line.empty()) return std::nullopt;  // the separator never came
        const std::string_view field = take(line, ' ');
        if (field == "-") break;
        mount.optional.emplace_back(field);
    }
    mount.fstype = unescape(take(line, ' '));
    mount.source = unescape(take(line, ' '));
    mount.super_options = split(line, ',');
    if (mount.root.empty() || mount.target.empty() || mount.fstype.empty()) return std::nullopt;
    return mount;
}

}  // namespace

Result<ProcStat> parse_stat(std::string_view text)
{
    // comm is the process' own choice: only the last ')' ends it (proc(5)).
    const auto open = text.find(" (");
    const auto close = text.rfind(") ");
    if (open == std::string_view::npos || close == std::string_view::npos || close < open + 2)
        return corrupt("stat: no command in parentheses");
    ProcStat stat;
    stat.comm = text.substr(open + 2, close - open - 2);
    std::string_view rest = text.substr(close + 2);
    while (!rest.empty() && rest.back() == '\n') rest.remove_suffix(1);
    const auto fields = words(rest);
    // Field 3 of proc(5) is fields[0] here; start time is field 22.
    constexpr std::size_t kStartTime = 22 - 3;
    if (fields.size() <= kStartTime || fields[0].size() != 1)
        return corrupt("stat: too few fields");
    stat.state = fields[0][0];
    if (!read_one(text.substr(0, open), stat.pid) || !read_one(fields[1], stat.ppid) ||
        !read_one(fields[2], stat.pgrp) || !read_one(fields[3], stat.session) ||
        !read_one(fields[kStartTime], stat.start_time))
        return corrupt("stat: a field is not a number");
    // A negative one would be a process group to kill(2).
    if (stat.pid <= 0) return corrupt("stat: the pid is not positive");
    return stat;
}

Result<ProcStatus> parse_status(std::string_view text)
{
    StatusReader reader;
    while (!text.empty()) {
        std::string_view line = take(text, '\n');
        const std::string_view key = take(line, ':');
        if (!reader.line(key, trimmed(line)))
            return corrupt("status: bad or repeated line " + std::string(key.substr(0, 32)));
    }
    // Without them nothing can be said about privileges: no answer is better than a mild one.
    if (reader.seen != kAllSeen)
        return corrupt("status: a line about ids or privileges is missing");
    return std::move(reader.status);
}

Result<std::vector<IdMapping>> parse_id_map(std::string_view text)
{
    std::vector<IdMapping> map;
    while (!text.empty()) {
        std::array<std::uint32_t, 3> values{};
        if (map.size() == kMaxIdMapLines || !read_words(take(text, '\n'), values))
            return corrupt("id map: a line is not three numbers");
        map.push_back(IdMapping{values[0], values[1], values[2]});
    }
    return map;
}

std::string format_id_map(const std::vector<IdMapping>& map)
{
    std::string text;
    for (const IdMapping& line : map)
        text += std::to_string(line.inside) + " " + std::to_string(line.outside) + " " +
                std::to_string(line.count) + "\n";
    return text;
}

bool MountInfo::has(std::string_view option) const
{
    return std::find(options.begin(), options.end(), option) != options.end();
}

Result<std::vector<MountInfo>> parse_mountinfo(std::string_view text)
{
    std::vector<MountInfo> mounts;
    while (!text.empty()) {
        auto mount = mount_line(take(text, '\n'));
        if (!mount || mounts.size() == kMaxItems)
            return corrupt("mountinfo: line " + std::to_string(mounts.size() + 1) +
                           " does not parse");
        mounts.push_back(*std::move(mount));
    }
    return mounts;
}

Result<std::vector<CgroupLine>> parse_cgroup(std::string_view text)
{
    std::vector<CgroupLine> lines;
    while (!text.empty()) {
        std::string_view line = take(text, '\n');
        const auto hierarchy = number<std::uint32_t>(take(line, ':'));
        // Two colons: a v1 path may hold further ones.
        const auto colon = line.find(':');
        if (!hierarchy || colon == std::string_view::npos || lines.size() == kMaxItems)
            return corrupt("cgroup: line " + std::to_string(lines.size() + 1) + " does not parse");
        CgroupLine parsed;
        parsed.hierarchy = *hierarchy;
        parsed.controllers = split(line.substr(0, colon), ',');
        parsed.path = line.substr(colon + 1);
        if (!parsed.path.starts_with('/')) return corrupt("cgroup: a path is not absolute");
        lines.push_back(std::move(parsed));
    }
    return lines;
}

}  // namespace sandbox::sys
