// SPDX-License-Identifier: Apache-2.0
#include "probe/subordinate.hpp"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include <fcntl.h>
#include <unistd.h>

#include "sys/fd.hpp"
#include "sys/file.hpp"

namespace sandbox::probe {

namespace {

// More users than any host has ranges for.
constexpr std::size_t kMostFile = 1U << 20;

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

Result<std::uint64_t> own_range(const char* file, std::uint64_t count)
{
    const std::uint32_t uid = geteuid();
    const std::string name = login_name(uid);
    const auto text = sys::read_file(file, kMostFile);
    if (text) {
        for (const SubordinateRange& range : parse_subordinate(*text)) {
            // subuid(5): an entry is by name or by number.
            const bool ours = range.owner == std::to_string(uid) ||
                              (!name.empty() && range.owner == name);
            // The first that is large enough: newuidmap asks for one range, too.
            if (ours && range.count >= count) return range.base;
        }
    }
    return fail(Code::not_found, fmt::format("{} gives no range of {} ids to {}", file, count,
                                             name.empty() ? fmt::format("uid {}", uid) : name));
}

Status write_by(const char* helper, int pid, std::uint64_t base, std::uint64_t count)
{
    // The helper's fixed place, by descriptor: PATH is not asked.
    const std::string path = std::string("/usr/bin/") + helper;
    const auto program = sys::open_file(path, O_PATH);
    if (!program) return fail(program.error());
    const ProgramEnd end = run_program(
        {.executable = program->get(),
         .argv = {helper, std::to_string(pid), "0", std::to_string(base), std::to_string(count)}});
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

Result<std::string> map_by_helpers(int pid, std::uint64_t count)
{
    // Both before either is written: half a map would be of no use.
    const std::uint64_t users = TRY(own_range("/etc/subuid", count));
    const std::uint64_t groups = TRY(own_range("/etc/subgid", count));
    TRY_VOID(write_by("newuidmap", pid, users, count));
    TRY_VOID(write_by("newgidmap", pid, groups, count));
    return fmt::format("{}:{}", users, count);
}

}  // namespace sandbox::probe
