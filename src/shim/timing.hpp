// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

// When each step of one generation was over, in CLOCK_BOOTTIME nanoseconds. A mark is one read of
// the vDSO clock: they are always taken. STATE/sandboxes/ID/timing.json holds them once everything
// is over, for people who ask where a launch spends its time.
namespace sandbox::shim {

inline constexpr const char* kTimingName = "timing.json";

class Timing {
public:
    // `step` is a string literal; a step that comes again (a second client) keeps its first time.
    void mark(std::string_view step);

    // {"boottime_ns":{STEP:NS,…}}, not synced: nothing depends on it.
    [[nodiscard]] Status save(int state_dir) const;

private:
    std::vector<std::pair<std::string_view, std::uint64_t>> marks_;
};

}  // namespace sandbox::shim
