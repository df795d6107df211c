// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>

#include "sys/cgroup/cgroup.hpp"
#include "sys/cgroup/walk.hpp"
#include "sys/file.hpp"

namespace sandbox::sys::cgroup {

namespace {

// Far above any of these files; more is no file of a cgroup.
constexpr std::size_t kLimit = 64U << 10;
constexpr std::uint64_t kNsPerUs = 1000;

// A file that this kernel or hierarchy does not have counts as nothing used.
std::string text_of(int dir, const std::string& file)
{
    auto text = read_file_at(dir, file, kLimit);
    // Nothing used, rather than a failure: a kernel that does not count something still runs
    // sandboxes.
    return text ? *std::move(text) : std::string();
}

std::uint64_t value_of(int dir, const std::string& file)
{
    const std::string text = text_of(dir, file);
    std::uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

// v1 counts an event in the cgroup where it happened only (memcg_memory_event stops at the first
// level there; pids charges the forking task's own): the whole is the sum.
Result<std::uint64_t> sum_below(int dir, const std::string& file, std::string_view key)
{
    std::uint64_t sum = 0;
    // Bounded by subtree(): what a workload makes below cannot keep us reading.
    for (const std::string& path : TRY(subtree(dir)))
        sum += keyed_value(text_of(dir, path + "/" + file), key);
    return sum;
}

Status add_v1(int dir, Usage& usage)
{
    usage.memory_bytes += value_of(dir, "memory.usage_in_bytes");
    usage.memory_peak += value_of(dir, "memory.max_usage_in_bytes");
    usage.oom_kills += TRY(sum_below(dir, "memory.oom_control", "oom_kill"));
    usage.pids += value_of(dir, "pids.current");
    usage.pids_refused += TRY(sum_below(dir, "pids.events", "max"));
    // Nanoseconds, where v2 counts microseconds.
    usage.cpu_usage_us += value_of(dir, "cpuacct.usage") / kNsPerUs;
    const std::string stat = text_of(dir, "cpu.stat");
    usage.cpu_throttled_us += keyed_value(stat, "throttled_time") / kNsPerUs;
    usage.cpu_throttled_periods += keyed_value(stat, "nr_throttled");
    return {};
}

// v2: counts of a cgroup hold those of its descendants, also of removed ones. Before 6.11 that is
// not so for pids (kernel/cgroup/pids.c): there is no pids.events.local yet.
Result<std::uint64_t> forks_refused(int dir)
{
    if (text_of(dir, "pids.events.local").empty()) return sum_below(dir, "pids.events", "max");
    return keyed_value(text_of(dir, "pids.events"), "max");
}

Status add_v2(int dir, Usage& usage)
{
    usage.memory_bytes += value_of(dir, "memory.current");
    // memory.peak: Linux 5.19; 0 before.
    usage.memory_peak += value_of(dir, "memory.peak");
    usage.oom_kills += keyed_value(text_of(dir, "memory.events"), "oom_kill");
    usage.pids += value_of(dir, "pids.current");
    usage.pids_refused += TRY(forks_refused(dir));
    const std::string stat = text_of(dir, "cpu.stat");
    usage.cpu_usage_us += keyed_value(stat, "usage_usec");
    usage.cpu_throttled_us += keyed_value(stat, "throttled_usec");
    usage.cpu_throttled_periods += keyed_value(stat, "nr_throttled");
    return {};
}

}  // namespace

Result<std::uint64_t> CgroupTree::oom_kills() const
{
    std::uint64_t kills = 0;
    for (const Dir& dir : dirs_) {
        const int fd = dir.fd.get();
        if (dir.hierarchy.version == Version::v2)
            kills += keyed_value(text_of(fd, "memory.events"), "oom_kill");
        else if (std::ranges::find(dir.hierarchy.controllers, "memory") !=
                 dir.hierarchy.controllers.end())
            kills += TRY(sum_below(fd, "memory.oom_control", "oom_kill"));
    }
    return kills;
}

Result<Usage> CgroupTree::usage() const
{
    Usage usage;
    for (const Dir& dir : dirs_) {
        TRY_VOID(dir.hierarchy.version == Version::v2 ? add_v2(dir.fd.get(), usage)
                                                      : add_v1(dir.fd.get(), usage));
    }
    return usage;
}

}  // namespace sandbox::sys::cgroup
