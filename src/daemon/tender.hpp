// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "supervisor/paths.hpp"

namespace sandbox::daemon {

// What the tending process tells the daemon, one frame a message. Counts are of the one pass.
struct Tended {
    enum class What { reconcile, converge } what = What::reconcile;
    // CLOCK_BOOTTIME, nanoseconds.
    std::uint64_t took_ns = 0;
    std::uint64_t removed = 0;   // reconcile: things of dead sandboxes
    std::uint64_t failures = 0;  // converge: files that could not be brought about
    std::string failure;         // of the pass itself; empty: it went through
    std::vector<std::string> lines;  // what it did, for the log
    bool operator==(const Tended&) const = default;
};
// Compact JSON.
std::string encode(const Tended& tended);
// corrupt: not JSON; invalid_argument: wrong types or unknown keys.
[[nodiscard]] Result<Tended> decode_tended(std::string_view payload);

// Runs in a process of its own until the daemon closes the channel: a full reconcile and a pass
// over profiles.d at once, then on the timer, when profiles.d changed, and whenever a byte comes.
// Never returns: ends the process with _exit(). `channel` is a connected stream, borrowed.
void tend(const supervisor::Paths& paths, Millis interval, int channel);

}  // namespace sandbox::daemon
