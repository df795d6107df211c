// SPDX-License-Identifier: Apache-2.0
#include "base/failpoint.hpp"
#include "shim/keeper.hpp"
#include "sys/process.hpp"

// The log worker of the profile's process: followed by another when it is killed, waited for at
// the end.
namespace sandbox::shim {

namespace {

// A writer that survived the kill is in uninterruptible sleep: not waited for any longer.
constexpr Millis kDrainDeadline{5'000};  // after everything that could write was killed
constexpr Millis kTryAgain{100};         // for a host that is short of something just now

}  // namespace

Status Keeper::watch_log()
{
    if (!generation_.log) return {};
    // Its end, not its pipes: a worker that is alive may be slow, never replaced.
    log_watch_ = TRY(
        loop_.when_readable(generation_.log->ended.get(), [this] { on_log_worker_ended(); }));
    return {};
}

void Keeper::on_log_worker_ended()
{
    if (log_watch_) loop_.forget(*log_watch_);
    log_watch_.reset();
    // Also tells a worker that drained everything from one that was killed.
    auto followed = revive(*generation_.log, generation_.log_marker);
    if (!followed) {
        // The workload waits at a full pipe meanwhile, no longer than this takes.
        if (loop_.after(kTryAgain, [this] { on_log_worker_ended(); })) return;
        // Without spares the pipes close, and the workload gets EPIPE instead of waiting for ever.
        generation_.log->spares.reset();
    }
    if (followed && *followed) {
        failpoint("effect.log-worker-again");
        // Not known to the ledger it still ends by itself, with the last of its writers.
        if (const auto identity = sys::identity_of(generation_.log->process.pid())) {
            static_cast<void>(journal_.log_worker_replaced(*identity));
        }
        failpoint("log-worker.replaced");
        if (watch_log()) return;
        generation_.log->spares.reset();
    }
    log_is_drained_ = true;
    if (exit_) on_drained();
}

void Keeper::await_log()
{
    if (!generation_.log) return finish();
    // Without a timer nothing would end the wait: better the last lines lost than a shim that
    // stays.
    if (!loop_.after(kDrainDeadline, [this] { finish(); })) return finish();
    // Usually the pipes closed with the workload, and the worker has ended by now or is about to.
    if (log_is_drained_) return on_drained();
    if (!log_watch_ && !watch_log()) finish();
}

void Keeper::on_drained()
{
    // Attached clients too: a terminal's last output is still in our hands.
    if (!sessions_ || sessions_->service_is_drained()) return finish();
    sessions_->on_service_drained([this] { finish(); });
}

void Keeper::finish()
{
    // Both descriptors of the spares are copies: the workload's end of file waits for them.
    // A client's own descriptors: whoever reads from them is told of the end with us.
    if (generation_.log) generation_.log->spares.reset();
    over_ = true;
    loop_.stop();
}

}  // namespace sandbox::shim
