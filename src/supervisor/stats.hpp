// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "canon/canon.hpp"
#include "ledger/records.hpp"
#include "supervisor/service.hpp"

namespace sandbox::supervisor {

// What a limit file says: nothing for "max", for v1's "no limit" (the largest page-aligned number)
// and for what is no number. Pure.
std::optional<std::uint64_t> parse_limit(std::string_view text);

// One look at the workload's own cgroups. not_found: it has none, so nothing of it runs.
[[nodiscard]] Result<Stats> read_stats(const ledger::Sandbox& sandbox,
                                       const std::string& workload_cgroup);

// {"id","name","memory_bytes","memory_limit","memory_peak","cpu_ns","throttled_ns","pids",
// "pids_limit","oom_kills","moment_ns","cpu_millis"}; cpu_millis is thousandths of a CPU used since
// `before`, null without one. Pure.
canon::Json to_json(const Stats& stats, const Stats* before);
std::optional<std::uint64_t> cpu_millis(const Stats& stats, const Stats* before);

}  // namespace sandbox::supervisor
