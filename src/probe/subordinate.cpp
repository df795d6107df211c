// SPDX-License-Identifier: Apache-2.0
#include "probe/subordinate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/fd.hpp"
#include "sys/file.hpp"

namespace sandbox::probe {

namespace {

// More users than any host has ranges for.
constexpr std::size_t kMostFile = 1U << 20;
constexpr std::uint64_t kNoId = 0xFFFFFFFF;  // chown(2), setresuid(2)

std::optional<std::uint64_t> decimal(std::string_view text)
{
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

// "a:b:c\n…" -> {a, b, c, …} a line.
std::vector<std::vector<std::string_view>> colon_lines(std::string_view text)
{
    std::vector<std::vector<std::string_view>> lines;
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        std::string_view line = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        std::vector<std::string_view> fields;
        while (true) {
            const std::size_t colon = line.find(':');
            fields.push_back(line.substr(0, colon));
            if (colon == std::string_view::npos) break;
            line.remove_prefix(colon + 1);
        }
        lines.push_back(std::move(fields));
    }
    return lines;
}

// Static programs have no name service: the file decides, which is what newuidmap needs least. A
// user of a directory service is then found by number.
std::string login_name(std::uint32_t uid)
{
    const auto text = sys::read_file("/etc/passwd", kMostFile);
    if (!text) return {};
    for (const auto& fields : colon_lines(*text)) {
        if (fields.size() > 2 && decimal(fields[2]) == uid) return std::string(fields[0]);
    }
    return {};
}

std::optional<SubordinateRange> range_of(std::string_view text, std::uint32_t uid,
                                         std::string_view login, std::uint64_t least)
{
    for (SubordinateRange& range : parse_subordinate(text)) {
        // subuid(5): an entry is by name or by number.
        const bool ours = range.owner == std::to_string(uid) ||
                          (!login.empty() && range.owner == login);
        // The first that is large enough: newuidmap asks for one range, too. Root's id, the last
        // ones and "no id" are nobody's to give (setresuid(2)).
        const bool possible = range.base > 0 && range.base < kNoId && range.count < kNoId &&
                              range.base + range.count < kNoId;
        if (ours && possible && range.count >= least) return std::move(range);
    }
    return std::nullopt;
}

// Who maps ids for us has more rights than we: it must be root's alone.
Result<sys::UniqueFd> open_helper(const std::string& path)
{
    // The helper's fixed place, by descriptor: PATH is not asked.
    sys::UniqueFd program = TRY(sys::open_file(path, O_PATH));
    struct stat status{};
    if (fstat(program.get(), &status) != 0) return fail_errno("fstat", path);
    if (!S_ISREG(status.st_mode) || status.st_uid != 0 || (status.st_mode & 022) != 0)
        return fail(Code::permission_denied,
                    path + " is not a regular file that only root can change");
    return program;
}

Status write_by(const char* helper, int pid, std::uint32_t own, std::uint64_t inside,
                std::uint64_t outside, std::uint64_t count)
{
    const std::string path = std::string("/usr/bin/") + helper;
    const auto program = open_helper(path);
    if (!program) return fail(program.error());
    const ProgramEnd end = run_program(
        {.executable = program->get(),
         .argv = {helper, std::to_string(pid), "0", std::to_string(own), "1",
                  std::to_string(inside), std::to_string(outside), std::to_string(count)}});
    if (end.status == 0) return {};
    return fail(Code::unavailable,
                fmt::format("{} ended with {}: {}", path, end.status, first_line(end.output)));
}

}  // namespace

std::vector<SubordinateRange> parse_subordinate(std::string_view text)
{
    std::vector<SubordinateRange> ranges;
    for (const auto& fields : colon_lines(text)) {
        // Comments and damage are skipped, as newuidmap does it.
        if (fields.size() != 3) continue;
        const auto base = decimal(fields[1]);
        const auto count = decimal(fields[2]);
        if (base && count) ranges.push_back({std::string(fields[0]), *base, *count});
    }
    return ranges;
}

std::string subordinate_overlap(std::uint64_t base, std::uint64_t count)
{
    // Both files: a range is one of users and of groups.
    for (const char* file : {"/etc/subuid", "/etc/subgid"}) {
        const auto text = sys::read_file(file, kMostFile);
        if (!text) continue;
        for (const SubordinateRange& range : parse_subordinate(*text)) {
            // Half-open ranges: touching is no overlap.
            if (range.base < base + count && base < range.base + range.count) {
                return fmt::format("{} gives {}:{} to {}, which overlaps {}:{}", file, range.base,
                                   range.count, range.owner, base, count);
            }
        }
    }
    return {};
}

std::optional<OwnRange> choose_range(std::string_view subuid, std::string_view subgid,
                                     std::uint32_t uid, std::string_view login, std::uint64_t least)
{
    const auto users = range_of(subuid, uid, login, least);
    const auto groups = range_of(subgid, uid, login, least);
    if (!users || !groups) return std::nullopt;
    return OwnRange{users->base, groups->base, std::min(users->count, groups->count)};
}

Result<OwnRange> own_range(std::uint64_t least)
{
    const std::uint32_t uid = geteuid();
    const std::string login = login_name(uid);
    // An unreadable file gives nothing.
    const std::string users = sys::read_file("/etc/subuid", kMostFile).value_or("");
    const std::string groups = sys::read_file("/etc/subgid", kMostFile).value_or("");
    if (const auto range = choose_range(users, groups, uid, login, least)) return *range;
    const bool has_users = range_of(users, uid, login, least).has_value();
    return fail(Code::not_found, fmt::format("{} gives no range of {} ids to {}",
                                             has_users ? "/etc/subgid" : "/etc/subuid", least,
                                             login.empty() ? fmt::format("uid {}", uid) : login));
}

Status map_by_helpers(int pid, const OwnRange& range)
{
    TRY_VOID(write_by("newuidmap", pid, geteuid(), range.users, range.users, range.count));
    return write_by("newgidmap", pid, getegid(), range.users, range.groups, range.count);
}

}  // namespace sandbox::probe
