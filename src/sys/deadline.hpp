// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

#include "base/units.hpp"

namespace sandbox::sys {

// Nanoseconds of CLOCK_BOOTTIME: goes on during suspend, never jumps.
std::int64_t boottime_ns() noexcept;

// An absolute point on CLOCK_BOOTTIME. A retried wait never grows longer than was asked. A value;
// nothing here fails.
class Deadline {
public:
    static Deadline after(Millis span) noexcept;
    static Deadline never() noexcept { return Deadline(INT64_MAX); }
    // For a point that came from a ledger or another process of this boot.
    static Deadline at_boottime_ns(std::int64_t point) noexcept { return Deadline(point); }

    std::int64_t boottime_ns() const noexcept { return point_; }
    bool passed() const noexcept;
    // What is left, rounded up; never negative.
    Millis remaining() const noexcept;
    // The argument for poll(2): -1 for never, clamped to INT_MAX.
    int poll_timeout() const noexcept;

private:
    explicit Deadline(std::int64_t point) noexcept : point_(point) {}
    std::int64_t point_;
};

}  // namespace sandbox::sys
