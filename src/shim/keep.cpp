// SPDX-License-Identifier: Apache-2.0
#include "shim/keep.hpp"

#include <sys/wait.h>

#include "base/failpoint.hpp"
#include "shim/keeper.hpp"
#include "shim/update.hpp"
#include "sys/file.hpp"

namespace sandbox::shim {

namespace {

constexpr std::int64_t kNsInMs = 1'000'000;

std::vector<audit::ControlEvidence> for_audit(const std::vector<driver::Evidence>& evidence)
{
    std::vector<audit::ControlEvidence> list;
    for (const driver::Evidence& e : evidence) {
        list.push_back({e.name, e.mechanism, e.planned, e.observed, e.held});
    }
    return list;
}

audit::Launched launched_event(const Generation& generation)
{
    const plan::ExecutionPlan& plan = *generation.plan;
    audit::Launched event;
    event.plan_digest = plan.digest().str();
    event.driver = profile::to_string(plan->driver);
    event.isolation_class = plan::to_string(plan->isolation_class);
    // Named in the profile: a shared kernel is only used where somebody asked for it.
    event.shared_kernel_acknowledged = plan->request.isolation == profile::Isolation::sandbox;
    event.artifact_digest = generation.artifact_digest;
    event.bpf = generation.bpf;
    event.artifacts = plan->artifacts;
    event.controls = for_audit(generation.evidence);
    return event;
}

// How long a foreground run looks whether its workload is over already: most tool calls are, and
// then one commit tells all. Shorter than anybody's patience for `ps` to say "running".
constexpr Millis kAtOnce{5};

bool in_foreground(const LaunchRequest& request)
{
    return request.out != Output::log_only || request.err != Output::log_only;
}

Result<ledger::Exit> keep_until_end(Keeper& keeper, Generation& running, Journal& journal)
{
    failpoint("gate.before");
    TRY_VOID(open_gate(running));
    running.timing.mark("gate");
    failpoint("gate.after");
    audit::Launched launched = launched_event(running);
    // Goes with the state folder when the sandbox is not kept.
    if (running.request.on_exit == OnExit::keep) TRY_VOID(save_evidence(running));
    failpoint("effect.evidence-file");
    running.timing.mark("evidence-file");
    // Before the commit: for a run that is over, one sync instead of two is what a caller feels.
    if (in_foreground(running.request) && keeper.ended_at_once(kAtOnce)) {
        return keeper.keep(std::move(launched));
    }
    TRY_VOID(journal.running(running.pid1, std::move(launched)));
    running.timing.mark("running-commit");
    TRY_VOID(keeper.open_for_business());
    return keeper.keep(std::nullopt);
}

// The folders that the names in a context are below.
struct Folders {
    sys::UniqueFd run_root;
    sys::UniqueFd state_root;
    driver::ResourceContext context;
};

Result<Folders> open_folders(const LaunchRequest& request)
{
    // Not through the sandbox's own folder: a launch may fail before it is made. The parents are
    // the supervisor's, and exist.
    const std::string& run_dir = request.binding.run_dir.str();
    Folders open;
    open.run_root = TRY(sys::open_dir(run_dir.substr(0, run_dir.rfind('/'))));
    open.state_root = TRY(sys::open_dir(request.state_root));
    open.context.run_root = open.run_root.get();
    open.context.state_root = open.state_root.get();
    open.context.cgroups = TRY(sys::cgroup::detect());
    open.context.cgroup_parent = request.cgroup_parent;
    open.context.boot_id = TRY(sys::boot_id());
    return open;
}

}  // namespace

Result<Kept> keep(Generation& running, Journal& journal, sys::UniqueFd launcher,
                  sys::UniqueFd listener, sys::Deadline ttl)
{
    Keeper keeper(running, journal, std::move(launcher), std::move(listener), ttl);
    const std::int64_t began = sys::boottime_ns();
    Kept kept;
    kept.exit = TRY(keep_until_end(keeper, running, journal));
    kept.cause = keeper.cause();
    kept.ran = Millis{(sys::boottime_ns() - began) / kNsInMs};
    kept.listener = keeper.take_listener();
    kept.ttl = keeper.ttl();
    return kept;
}

audit::LaunchFailed to_audit(const LaunchRequest& request, const LaunchFailure& failure)
{
    return {canon::digest(request.plan_file), failure.step, failure.error.message(),
            for_audit(failure.evidence)};
}

Status unwind(Journal& journal, const LaunchRequest& request, ledger::State final_state)
{
    const Folders open = TRY(open_folders(request));
    // From the ledger, not from memory: what a former step intended counts, too.
    const auto entries = TRY(journal.open_entries());
    failpoint("unwind.before");
    const driver::Unwound unwound = driver::unwind(entries, open.context);
    failpoint("unwind.after");
    return journal.cleaned(unwound, final_state);
}

Result<driver::Unwound> unwind_generation(Journal& journal, const LaunchRequest& request)
{
    const Folders open = TRY(open_folders(request));
    const auto entries = TRY(journal.open_entries_of_run());
    failpoint("between.before-unwind");
    driver::Unwound unwound = driver::unwind(entries, open.context);
    failpoint("between.unwound");
    // PID 1, crun and the log worker were ours to wait for; this shim lives on, and each zombie
    // would keep a pid.
    while (waitpid(-1, nullptr, WNOHANG) > 0) {}
    return unwound;
}

}  // namespace sandbox::shim
