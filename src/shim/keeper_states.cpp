// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <cerrno>

#include "base/failpoint.hpp"
#include "canon/json.hpp"
#include "shim/freezer.hpp"
#include "shim/keeper_client.hpp"
#include "sys/file.hpp"

// What goes on beside the workload of a running generation: its clocks, its health, pause and
// resume.
namespace sandbox::shim {

// docs/protocol.md, port 5002: only frames there count as signs of life of PID 1.
Status Keeper::watch_guest()
{
    auto stream = open_port(generation_.launched->channel.get(), wire::Port::events);
    // Gone already: its channel says so, and on_init_channel() knows what to do.
    if (!stream && stream.error().errnum() == EPIPE) return {};
    if (!stream) return fail(stream.error());
    GuestEvents::Listener listener;
    listener.violated = [this](const std::string& why) { end_as_faulty("guest.events", why); };
    listener.silent = [this](const std::string& why) { end_as_faulty("guest.liveness", why); };
    listener.oom = [this](std::uint64_t more) {
        static_cast<void>(journal_.tell(audit::Violation{"limit.memory", kGuestOomDetail, more}));
    };
    guest_events_.emplace(loop_, EventStream(std::move(*stream), generation_.event_nonce),
                          Millis{wire::kLivenessMs}, std::move(listener));
    return guest_events_->start();
}

Status Keeper::start_watching()
{
    TRY_VOID(watch_guest());
    const plan::ExecutionPlan& plan = *generation_.plan;
    const driver::Binding& binding = generation_.request.binding;
    // Counted from the start of the generation, in BOOTTIME as every timer of the loop.
    if (const auto& timeout = plan->process.timeout) {
        TRY(loop_.after(*timeout, [this, timeout] {
            if (exit_) return;
            static_cast<void>(
                journal_.acted("timeout", "process.timeout is " + format_duration(*timeout)));
            failpoint("timeout.told");
            blame(EndCause::timed_out);
            ending_ = Ending::timed_out;
            kill_everything();
        }));
    }
    // Without a cgroup (an ordinary user's session) nobody counts OOM kills.
    if (plan->resources.version != plan::CgroupVersion::none) {
        oom_.emplace(
            loop_,
            [this] {
                // A count that cannot be read changes nothing: it is read again at the end.
                return driver::oom_kills(*generation_.plan, generation_.request.binding)
                    .value_or(oom_->told());
            },
            [this](std::uint64_t more) {
                static_cast<void>(
                    journal_.tell(audit::Violation{"limit.memory", kOomDetail, more}));
                failpoint("oom.told");
            });
        // Told at the end too: without the notice it is only later.
        static_cast<void>(oom_->start(binding.cgroup));
    }
    return watch_lifecycle();
}

// From the plan as it is now: also after an update of it.
Status Keeper::watch_lifecycle()
{
    const profile::Lifecycle& lifecycle = (*generation_.plan)->request.lifecycle;
    // Before the new one: two checks must not share the leaf.
    health_.reset();
    clocks_.emplace(
        loop_, lifecycle, ttl_, [this] { return is_busy(); },
        [this, lifecycle](EndCause cause) {
            if (exit_ || ending_ != Ending::none) return;
            exit_why_ = cause == EndCause::ttl
                            ? "its ttl of " + format_duration(*lifecycle.ttl) + " is over"
                            : "no session for " + format_duration(*lifecycle.idle_timeout);
            begin_stop(lifecycle.stop_timeout, cause, exit_why_);
        });
    TRY_VOID(clocks_->start());
    // An update may come while it is paused.
    if (paused_) clocks_->hold();
    if (!lifecycle.health) return {};
    health_.emplace(loop_, generation_, journal_, [this](Health health) { on_health(health); });
    TRY_VOID(health_->start());
    if (paused_) health_->hold();
    return {};
}

void Keeper::on_health(Health health)
{
    const profile::Lifecycle& lifecycle = (*generation_.plan)->request.lifecycle;
    // Only a restart policy acts on bad health; without one it is shown, and no more.
    if (health != Health::unhealthy || lifecycle.restart == profile::RestartPolicy::no) return;
    if (exit_ || ending_ != Ending::none) return;
    begin_stop(lifecycle.stop_timeout, EndCause::unhealthy, "unhealthy");
}

// A session at work, or somebody who looks on.
bool Keeper::is_busy()
{
    for (const auto& [number, client] : clients_) {
        if (client->is_launcher) return true;
    }
    // Behind a guest's wall no process can be counted: its sessions are.
    if ((*generation_.plan)->microvm) return sessions_ && sessions_->any_at_work();
    // In doubt it is: nobody's work is taken away on a guess.
    return has_sessions(generation_.request.binding.cgroup).value_or(true);
}

Status Keeper::pause_workload(std::uint32_t generation)
{
    const driver::Binding& binding = generation_.request.binding;
    if (generation != binding.generation) {
        return fail(Code::conflict, "generation " + std::to_string(generation) +
                                        " is meant, and generation " +
                                        std::to_string(binding.generation) + " runs");
    }
    // Idempotent: frozen is frozen.
    if (paused_) return {};
    if (ending_ != Ending::none) return fail(Code::conflict, "it is about to end");
    failpoint("pause.before");
    // A machine first, while it still listens. A refusal may come from one that stands still already.
    Status paused = halt_machine();
    if (paused) paused = freeze_workload(binding.cgroup);
    failpoint("effect.frozen");
    // The state in the ledger must not lie: without the commit it goes on.
    if (paused) paused = journal_.paused("");
    if (!paused) {
        static_cast<void>(thaw_workload(binding.cgroup));
        if (continue_machine()) set_guest_clock();
        return paused;
    }
    paused_ = true;
    if (clocks_) clocks_->hold();
    if (health_) health_->hold();
    return {};
}

Status Keeper::resume_workload(std::uint32_t generation, std::string why)
{
    const driver::Binding& binding = generation_.request.binding;
    if (generation != binding.generation) {
        return fail(Code::conflict, "generation " + std::to_string(generation) +
                                        " is meant, and generation " +
                                        std::to_string(binding.generation) + " is here");
    }
    if (!paused_) return {};
    failpoint("resume.before");
    // Thaw before the commit: if it fails the sandbox is still paused, as the ledger says.
    TRY_VOID(thaw_workload(binding.cgroup));
    failpoint("effect.thawed");
    paused_ = false;
    TRY_VOID(continue_machine());
    set_guest_clock();
    rotate_guest_nonce();
    if (clocks_) clocks_->release();
    if (health_) health_->release();
    return journal_.resumed(std::move(why));
}

// A signal to what is frozen waits until it goes on.
void Keeper::thaw_after(std::string why)
{
    if (!paused_ || exit_) return;
    // It cannot be thawed: a frozen workload obeys no signal, so only the kill is left.
    if (resume_workload(generation_.request.binding.generation, std::move(why))) return;
    ending_ = Ending::killed;
    kill_everything();
}

// For `inspect`: why it ended, where the exit status cannot tell. Not synced; the audit has it too.
void Keeper::save_end() const
{
    // A sandbox that is removed at its end has nobody to read the file.
    if (cause_ == EndCause::workload || generation_.request.on_exit == OnExit::remove) return;
    const auto folder = sys::open_dir(generation_.request.binding.state_dir.str());
    const auto text = canon::serialize(
        {{"generation", generation_.request.binding.generation}, {"ended_by", to_string(cause_)}});
    if (!folder || !text) return;
    const auto file = sys::open_at2(folder->get(), kEndName, O_WRONLY | O_CREAT | O_TRUNC, 0600,
                                    sys::kBeneath);
    if (file) static_cast<void>(sys::write_all(file->get(), *text + "\n"));
}

}  // namespace sandbox::shim
