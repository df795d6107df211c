// SPDX-License-Identifier: Apache-2.0
#include "supervisor/stats.hpp"

#include <charconv>

#include "canon/json.hpp"
#include "driver/groups.hpp"
#include "sys/deadline.hpp"

namespace sandbox::supervisor {

namespace {

constexpr std::uint64_t kNsPerUs = 1000;
constexpr std::uint64_t kMillis = 1000;
// page_counter's "no limit" is PAGE_COUNTER_MAX, LONG_MAX rounded to pages: nobody sets such a one.
constexpr std::uint64_t kNoLimit = 1ULL << 62;

std::optional<std::uint64_t> limit(const sys::cgroup::CgroupTree& tree,
                                   const std::string& controller, const char* v1, const char* v2)
{
    // v1's name first: where both hierarchies exist the controllers are in v1 (facts), and a file
    // that is not there costs one failed open.
    for (const char* file : {v1, v2}) {
        // The first file that exists decides: no limit in it is no limit, not a reason to ask the
        // other.
        if (const auto text = tree.read(controller, file)) return parse_limit(*text);
    }
    return std::nullopt;
}

canon::Json or_null(const std::optional<std::uint64_t>& value)
{
    return value ? canon::Json(*value) : canon::Json(nullptr);
}

}  // namespace

std::optional<std::uint64_t> parse_limit(std::string_view text)
{
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value >= kNoLimit) {
        return std::nullopt;
    }
    return value;
}

Result<Stats> read_stats(const ledger::Sandbox& sandbox, const std::string& workload_cgroup)
{
    // Of today's mounts, not of the launch's: a hierarchy that is gone has no numbers.
    const sys::cgroup::Host host = TRY(driver::host_cgroups());
    const auto tree = TRY(sys::cgroup::CgroupTree::find(host, workload_cgroup));
    if (tree.empty())
        return fail(Code::not_found, "no cgroup " + workload_cgroup + ": nothing of it runs");
    const sys::cgroup::Usage usage = TRY(tree.usage());
    Stats stats;
    stats.id = sandbox.id;
    stats.name = sandbox.name;
    // Before the numbers would be as good; the distance between two looks is what counts.
    stats.moment_ns = static_cast<std::uint64_t>(sys::boottime_ns());
    stats.memory_bytes = usage.memory_bytes;
    stats.memory_peak = usage.memory_peak;
    stats.memory_limit = limit(tree, "memory", "memory.limit_in_bytes", "memory.max");
    stats.cpu_ns = usage.cpu_usage_us * kNsPerUs;
    stats.throttled_ns = usage.cpu_throttled_us * kNsPerUs;
    stats.pids = usage.pids;
    stats.pids_limit = limit(tree, "pids", "pids.max", "pids.max");
    stats.oom_kills = usage.oom_kills;
    return stats;
}

std::optional<std::uint64_t> cpu_millis(const Stats& stats, const Stats* before)
{
    // A new generation counts from zero again.
    if (before == nullptr || before->id != stats.id || before->cpu_ns > stats.cpu_ns ||
        before->moment_ns >= stats.moment_ns) {
        return std::nullopt;
    }
    return (stats.cpu_ns - before->cpu_ns) * kMillis / (stats.moment_ns - before->moment_ns);
}

canon::Json to_json(const Stats& stats, const Stats* before)
{
    return {{"id", stats.id.str()},
            {"name", stats.name.str()},
            {"memory_bytes", stats.memory_bytes},
            {"memory_limit", or_null(stats.memory_limit)},
            {"memory_peak", stats.memory_peak},
            {"cpu_ns", stats.cpu_ns},
            {"throttled_ns", stats.throttled_ns},
            {"pids", stats.pids},
            {"pids_limit", or_null(stats.pids_limit)},
            {"oom_kills", stats.oom_kills},
            {"moment_ns", stats.moment_ns},
            {"cpu_millis", or_null(cpu_millis(stats, before))}};
}

}  // namespace sandbox::supervisor
