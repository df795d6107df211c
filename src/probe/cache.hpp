// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "facts/facts.hpp"
#include "probe/probe.hpp"

// A short-lived copy of the last snapshot in RUN/probe.json (0600, replaced by rename). It is
// believed only when all of this still holds: same boot, same settings, same identity (inode, size,
// times) of every binary, owner and mode of the file, age below the limit. Safe between processes:
// the last writer wins.
namespace sandbox::probe {

// Long enough for a burst of launches, short enough that a change of the host shows soon.
inline constexpr std::chrono::seconds kCacheAge{600};

// Nothing when there is no cache or when it must not be believed; never an error.
std::optional<facts::CapabilitySnapshot> load_cache(const std::string& run_dir,
                                                    const ProbeSettings& settings,
                                                    std::chrono::seconds max_age = kCacheAge);

// Requires: the folder exists. A failure leaves the cache as it was.
[[nodiscard]] Status store_cache(const std::string& run_dir, const ProbeSettings& settings,
                                 const facts::CapabilitySnapshot& snapshot);

// load_cache and recheck_critical, else a fresh probe that is stored (a failure to store is
// ignored: the next launch probes again).
facts::CapabilitySnapshot cached_probe(const std::string& run_dir, const ProbeSettings& settings);

}  // namespace sandbox::probe
