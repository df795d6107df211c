// SPDX-License-Identifier: Apache-2.0
#include "shim/restart.hpp"

#include <algorithm>
#include <array>

namespace sandbox::shim {

namespace {

using profile::RestartPolicy;

bool wanted(RestartPolicy policy, const RunEnd& end)
{
    switch (end.cause) {
    // Somebody's word: no policy stands above it.
    case EndCause::asked:
    case EndCause::ttl:
    case EndCause::idle: return false;
    // Failures whatever status the workload managed to leave with.
    case EndCause::timed_out:
    case EndCause::unhealthy:
    case EndCause::launch_failed: return policy != RestartPolicy::no;
    case EndCause::workload: break;
    }
    if (policy == RestartPolicy::always) return true;
    // A time-out is 124, a kill 137: both are failures here.
    return policy == RestartPolicy::on_failure && end.code != 0;
}

bool was_healthy(const profile::Lifecycle& lifecycle, const RunEnd& end)
{
    // A run that the health check ended is the opposite, however long it lasted; and a launch that
    // failed has not run.
    if (end.cause == EndCause::unhealthy || end.cause == EndCause::launch_failed) return false;
    const Millis most = kHealthyRun / kHealthyBackoffs;  // also keeps the product in range
    return end.ran >= std::min(lifecycle.backoff, most) * kHealthyBackoffs;
}

}  // namespace

std::string_view to_string(EndCause cause) noexcept
{
    constexpr std::array<std::string_view, 7> kWords{
        "workload", "timeout", "unhealthy", "launch-failed", "asked", "ttl", "idle"};
    return kWords.at(static_cast<std::size_t>(cause));
}

std::optional<Restart> next_restart(const profile::Lifecycle& lifecycle, const Attempts& so_far,
                                    const RunEnd& end)
{
    if (!wanted(lifecycle.restart, end)) return std::nullopt;
    const Attempts before = was_healthy(lifecycle, end) ? Attempts{} : so_far;
    if (lifecycle.max_restarts && before.in_a_row >= *lifecycle.max_restarts) return std::nullopt;
    // A profile that asks for a longer first pause gets no shorter ones later.
    const Millis longest = std::max(kLongestBackoff, lifecycle.backoff);
    // Doubled each time, so that a workload that dies at once does not keep the host busy.
    const Millis delay = before.in_a_row == 0 ? lifecycle.backoff
                                              : std::min(before.backoff * 2, longest);
    return Restart{delay, {before.in_a_row + 1, delay}};
}

}  // namespace sandbox::shim
