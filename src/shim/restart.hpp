// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/units.hpp"
#include "profile/types.hpp"

// Whether a generation that has ended is followed by another, and when. Pure: time is an argument.
namespace sandbox::shim {

// The longest pause between two attempts, unless the profile's first one is longer already. A
// minute, as service managers and container runtimes have it.
inline constexpr Millis kLongestBackoff{60'000};
// A run of so many first pauses, or of so long, was a healthy one: the count begins anew.
inline constexpr int kHealthyBackoffs = 10;
inline constexpr Millis kHealthyRun{60'000};

enum class EndCause {
    workload,      // by itself, by a signal nobody here sent, or by its limits
    timed_out,     // process.timeout
    unhealthy,     // the health check gave it up
    launch_failed, // the next generation never came to its gate
    asked,         // stop, kill or rm: a person's word ends the cycle
    ttl,
    idle,
};
std::string_view to_string(EndCause cause) noexcept;

// What is known of the generation that ended.
struct RunEnd {
    EndCause cause = EndCause::workload;
    std::int32_t code = 0;  // exit status as a shell tells it
    Millis ran{0};
};

struct Attempts {
    std::uint32_t in_a_row = 0;  // restarts without a healthy run between them
    Millis backoff{0};           // before the latest; 0: none yet
    bool operator==(const Attempts&) const = default;
};

struct Restart {
    Millis delay{0};
    Attempts attempts;  // with this one counted
    bool operator==(const Restart&) const = default;
};

// Nothing: it stays down. As podman: `always` starts again whatever the status, `on-failure` after
// a status other than 0 (time-outs and out of memory are such), neither after a person's stop or
// when the sandbox's time is over.
std::optional<Restart> next_restart(const profile::Lifecycle& lifecycle, const Attempts& so_far,
                                    const RunEnd& end);

}  // namespace sandbox::shim
