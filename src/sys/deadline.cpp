// SPDX-License-Identifier: Apache-2.0
#include "sys/deadline.hpp"

#include <time.h>

#include <algorithm>
#include <climits>

namespace sandbox::sys {

namespace {

constexpr std::int64_t kNsPerSecond = 1'000'000'000;
constexpr std::int64_t kNsPerMs = 1'000'000;

}  // namespace

std::int64_t boottime_ns() noexcept
{
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return std::int64_t{now.tv_sec} * kNsPerSecond + now.tv_nsec;
}

Deadline Deadline::after(Millis span) noexcept
{
    const std::int64_t now = sandbox::sys::boottime_ns();
    const std::int64_t ms = std::max<std::int64_t>(span.count(), 0);
    // Anything beyond the end of the clock is "never": no wait is that long.
    if (ms > (INT64_MAX - now) / kNsPerMs) return never();
    return Deadline(now + ms * kNsPerMs);
}

bool Deadline::passed() const noexcept
{
    // INT64_MAX is "never", also where the clock would reach it.
    return point_ != INT64_MAX && sandbox::sys::boottime_ns() >= point_;
}

Millis Deadline::remaining() const noexcept
{
    if (point_ == INT64_MAX) return Millis::max();
    const std::int64_t left = point_ - sandbox::sys::boottime_ns();
    // Rounded up: a poll that returns a hair early would otherwise spin at the end.
    return Millis(left <= 0 ? 0 : (left + kNsPerMs - 1) / kNsPerMs);
}

int Deadline::poll_timeout() const noexcept
{
    if (point_ == INT64_MAX) return -1;
    return static_cast<int>(std::min<std::int64_t>(remaining().count(), INT_MAX));
}

}  // namespace sandbox::sys
