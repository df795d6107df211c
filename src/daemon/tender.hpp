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

// What the tending process tells the daemon, one a message.
struct Tended {
    enum class What { reconcile, converge } what = What::reconcile;
    std::uint64_t took_ns = 0;
    std::uint64_t removed = 0;   // reconcile: things of dead sandboxes
    std::uint64_t failures = 0;  // converge: files that could not be brought about
    std::string failure;         // of the pass itself; empty: it went through
    std::vector<std::string> lines;  // what it did, for the log
    bool operator==(const Tended&) const = default;
};
std::string encode(const Tended& tended);
[[nodiscard]] Result<Tended> decode_tended(std::string_view payload);

// Runs in a process of its own until the daemon closes the channel: a full reconcile and a pass
// over profiles.d at once, then on the timer, when profiles.d changed, and whenever a byte comes.
void tend(const supervisor::Paths& paths, Millis interval, int channel);

}  // namespace sandbox::daemon
