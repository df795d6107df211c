// SPDX-License-Identifier: Apache-2.0
#include "shim/keeper.hpp"
#include "shim/update.hpp"

// Live changes of what the shim itself holds: clocks and checks.
namespace sandbox::shim {

Status Keeper::update_plan(const UpdateRequest& request)
{
    // Its limits are about to go with it.
    if (ending_ != Ending::none) return fail(Code::conflict, "it is about to end");
    const profile::Lifecycle before = (*generation_.plan)->request.lifecycle;
    TRY_VOID(update(generation_, journal_, request));
    const profile::Lifecycle& now = (*generation_.plan)->request.lifecycle;
    // Clocks begin anew only if something of theirs changed: an idle time must not be put off by
    // another key.
    if (now == before) return {};
    move_ttl(before.ttl, now.ttl);
    return watch_lifecycle();
}

// Counted from the start that the one before was counted from; without one, from this generation's.
void Keeper::move_ttl(std::optional<Millis> before, std::optional<Millis> now)
{
    constexpr std::int64_t kNsPerMs = 1'000'000;
    if (before == now) return;
    // Both count from the same moment: an update to the same ttl changes nothing.
    const std::int64_t start = before ? ttl_.boottime_ns() - before->count() * kNsPerMs
                                      : started_ns_;
    ttl_ = now ? sys::Deadline::at_boottime_ns(start + now->count() * kNsPerMs)
               : sys::Deadline::never();
}

}  // namespace sandbox::shim
