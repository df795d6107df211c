// SPDX-License-Identifier: Apache-2.0
#include "supervisor/embedded.hpp"

#include <poll.h>

#include <algorithm>
#include <csignal>
#include <map>

#include "base/failpoint.hpp"
#include "base/tar.hpp"
#include "canon/json.hpp"
#include "shim/audit_log.hpp"
#include "shim/journal.hpp"
#include "supervisor/context.hpp"
#include "supervisor/copy.hpp"
#include "supervisor/inspect.hpp"
#include "supervisor/log_reader.hpp"
#include "supervisor/planning.hpp"
#include "supervisor/shim_requests.hpp"
#include "sys/file.hpp"

namespace sandbox::supervisor {

namespace {

// The shim's own unwinding waits for processes; beyond this it hangs.
constexpr Millis kShimFarewell{15'000};  // its own unwinding waits 5 s for processes, twice at most
constexpr Millis kLaunchEnds{3'000};  // a launch takes some 50 ms; one that hangs is for rm -f
constexpr int kLaunchGlanceMs = 5;
// Far above any plan: a file that somebody exchanged must not fill memory.
constexpr std::size_t kMostPlanBytes = 16U << 20;

// Asks, and waits for the end of the workload as long as it may take.
Status ask_to_stop(ShimConnection& connection, Millis timeout)
{
    failpoint("stop.before-request");
    TRY_VOID(expect_accepted(connection,
                             shim::StopRequest{static_cast<std::uint64_t>(timeout.count())}));
    failpoint("stop.accepted");
    // A workload that obeys at once is gone before we can ask for its end: the shim's own end
    // tells.
    if (connection.send(shim::WaitRequest{})) {
        static_cast<void>(connection.receive(sys::Deadline::after(timeout + kShimFarewell)));
    }
    return {};
}

bool has_driver(const facts::CapabilitySnapshot& snapshot)
{
    return snapshot.ok(facts::name::kDriverOci) || snapshot.ok(facts::name::kDriverNative) ||
           snapshot.ok(facts::name::kDriverMicrovm);
}

}  // namespace

Result<std::unique_ptr<EmbeddedService>> EmbeddedService::open(const Paths& paths, Need need)
{
    Host host;
    // Verbs that only look or end something must work where policy or facts are broken.
    if (need == Need::ledger) {
        host.paths = paths;
        // An unreadable config is ignored here: it gives the place of cgroups, and the ledger names
        // those that exist.
        LoadedConfig loaded = load_config(paths.config, paths.run);
        if (loaded.config) host.config = std::move(*loaded.config);
        adapt_to_user(host, loaded);
    } else {
        host = TRY(load_host(paths, Freshness::cached));
    }
    std::unique_ptr<EmbeddedService> service(new EmbeddedService(std::move(host)));
    // Forked before planning: its start-up costs as much as the planning, and both happen at once.
    if (need == Need::launch && has_driver(service->host_.snapshot)) {
        // Without a usable driver the resolver will say why; no shim is needed to hear it.
        service->early_ = TRY(start_early(service->host_));
    }
    return service;
}

EmbeddedService::~EmbeddedService() = default;

Result<ledger::Ledger*> EmbeddedService::ledger(ledger::OpenMode mode)
{
    if (!ledger_) {
        // Only who creates may make the folder: a look must leave no trace.
        if (mode == ledger::OpenMode::create) TRY_VOID(sys::make_dirs(host_.paths.state));
        ledger_.emplace(
            TRY_WITH(ledger::Ledger::open(HostPath(host_.paths.state), mode), "ledger"));
    }
    return &*ledger_;
}

Result<PlanOutcome> EmbeddedService::plan(const ProfileText& profile,
                                          const Adjustments& adjustments,
                                          const facts::CapabilitySnapshot* elsewhere)
{
    return make_plan(host_, profile, adjustments, elsewhere);
}

Result<PlanOutcome> EmbeddedService::plan_again(std::string_view plan_file)
{
    return make_plan_again(host_, plan_file);
}

Result<RunResult> EmbeddedService::run(const RunRequest& request)
{
    ledger::Ledger* ledger = TRY(this->ledger(ledger::OpenMode::create));
    const auto* plan = std::get_if<plan::ExecutionPlan>(&request.resolved);
    if (plan == nullptr) {
        if (const auto* denials = std::get_if<std::vector<resolve::Denial>>(&request.resolved)) {
            // The refusal is part of the audit log, though no sandbox came of it.
            TRY_VOID(record_denial(host_, *ledger, request.name, *denials));
        }
        return fail(Code::denied, "nothing to run: the profile was refused");
    }
    // The one started early is used once; a second run of this service makes its own.
    if (!early_) early_ = TRY(start_early(host_));
    EarlyShim early = std::move(*early_);
    early_.reset();
    return launch(host_, *ledger, std::move(early), *plan, request);
}

Result<std::vector<Listed>> EmbeddedService::list(bool all)
{
    std::vector<Listed> listed;
    auto ledger = this->ledger(ledger::OpenMode::read_only);
    if (!ledger) {
        // No ledger, no sandboxes: that is an answer, not a failure.
        if (ledger.error().code() == Code::not_found) return listed;
        return fail(ledger.error());
    }
    // A sandbox that waits for its restart rests in the ledger while its shim lives: only the claim
    // says what it waits for. Its deadline is the due time and a grace.
    std::map<SandboxId, std::uint64_t> due;
    for (const ledger::Claim& claim : TRY((*ledger)->claims())) {
        if (claim.verb == shim::kRestartVerb) {
            due[claim.sandbox] = claim.deadline_ns - shim::kRestartGraceNs;
        }
    }
    for (ledger::Sandbox& sandbox :
         TRY((*ledger)->list(all ? ledger::ListScope::all : ledger::ListScope::live))) {
        const auto waits = due.find(sandbox.id);
        // Asking each row would open /proc for a thousand deleted sandboxes.
        const bool looked_at = ledger::is_active(sandbox.state) || waits != due.end();
        const bool alive = looked_at && sandbox.shim && is_alive(*sandbox.shim);
        Listed one{std::move(sandbox), alive};
        // While it launches again the claim says so too.
        if (alive && waits != due.end() && !ledger::is_active(one.sandbox.state)) {
            one.restart_due_ns = waits->second;
        }
        listed.push_back(std::move(one));
    }
    return listed;
}

Result<Listed> EmbeddedService::find(std::string_view reference)
{
    ledger::Ledger* ledger = TRY(this->ledger(ledger::OpenMode::read_only));
    ledger::Sandbox sandbox = TRY(ledger->resolve(reference));
    Listed listed{std::move(sandbox), false};
    // Identity, not the number: a reused pid is not this shim.
    listed.shim_alive = listed.sandbox.shim && is_alive(*listed.sandbox.shim);
    if (!listed.shim_alive || ledger::is_active(listed.sandbox.state)) return listed;
    const auto claim = TRY(ledger->claim_of(listed.sandbox.id));
    if (claim && claim->verb == shim::kRestartVerb) {
        listed.restart_due_ns = claim->deadline_ns - shim::kRestartGraceNs;
    }
    return listed;
}

Result<canon::Json> EmbeddedService::inspect(std::string_view reference)
{
    const Listed listed = TRY(find(reference));
    return describe_sandbox(host_.paths, listed);
}

Result<plan::ExecutionPlan> EmbeddedService::plan_of(std::string_view reference)
{
    // The stored plan, not a new resolution: what it runs, whatever policy says today.
    const Listed listed = TRY(find(reference));
    const std::string text = TRY_WITH(sys::read_file(listed.sandbox.plan_path, kMostPlanBytes),
                                      "plan of the sandbox");
    return plan::decode_file(text);
}

Status EmbeddedService::logs(const LogQuery& query, const LogSink& sink)
{
    return read_logs(TRY(find(query.reference)), query, sink);
}

Status EmbeddedService::await_shim_end(const ledger::Sandbox& sandbox)
{
    if (!sandbox.shim) return {};
    // By pidfd: no number can be reused between look and wait.
    const auto process = sys::Pidfd::open(*sandbox.shim);
    if (!process) return {};
    if (TRY(process->wait_ended(sys::Deadline::after(kShimFarewell)))) return {};
    return fail(Code::deadline_exceeded, "the shim of " + sandbox.name.str() + " does not end");
}

// A shim listens a moment after the first instruction of its workload: who has seen output of it
// may come earlier.
Result<ShimConnection> EmbeddedService::reach_shim(const SandboxId& id)
{
    const auto deadline = sys::Deadline::after(kLaunchEnds);
    while (true) {
        auto connection = ShimConnection::open(host_.paths.run_of(id));
        if (connection || deadline.passed()) return connection;
        const Listed now = TRY(find(id.str()));
        if (!now.shim_alive || !ledger::is_active(now.sandbox.state)) return connection;
        poll(nullptr, 0, kLaunchGlanceMs);
    }
}

Status EmbeddedService::stop(std::string_view reference,
                             std::optional<std::chrono::milliseconds> timeout)
{
    const Listed listed = TRY(find(reference));
    // Idempotent: what has ended already was stopped, by whomever.
    if (ledger::rests(listed.sandbox) && !listed.shim_alive) return {};
    if (listed.sandbox.state == ledger::State::deleted) return {};
    if (!listed.shim_alive) return fail(dead_shim(listed.sandbox));
    if (!timeout) timeout = TRY(plan_of(reference))->request.lifecycle.stop_timeout;
    TRY_VOID(stop_alive(listed, *timeout));
    TRY_VOID(await_shim_end(listed.sandbox));
    // The shim may die of its own while it stops: only the ledger says whether it came to rest.
    const Listed after = TRY(find(listed.sandbox.id.str()));
    return ledger::is_active(after.sandbox.state) ? fail(dead_shim(after.sandbox)) : Status{};
}

// Between two generations a request can be lost with the connection: it is made again as long as
// the shim lives and is not on its way out.
Status EmbeddedService::stop_alive(const Listed& listed, Millis timeout)
{
    const auto deadline = sys::Deadline::after(kLaunchEnds);
    while (true) {
        auto connection = reach_shim(listed.sandbox.id);
        const Status asked = connection ? ask_to_stop(*connection, timeout)
                                        : fail(connection.error());
        failpoint("stop.told");
        if (asked) return {};
        // A fresh look each time round: the sandbox may have ended, or begun its next generation.
        const Listed now = TRY(find(listed.sandbox.id.str()));
        if (!now.shim_alive) return {};
        if (deadline.passed()) {
            // Without an answer and active: a launch that has not come far enough, or hangs.
            return ledger::is_active(now.sandbox.state) || now.restart_due_ns ? asked : Status{};
        }
        poll(nullptr, 0, kLaunchGlanceMs);
    }
}

Status EmbeddedService::kill(std::string_view reference, int signal)
{
    const auto deadline = sys::Deadline::after(kLaunchEnds);
    Listed listed = TRY(find(reference));
    while (true) {
        const bool runs = ledger::is_active(listed.sandbox.state) && !ledger::rests(listed.sandbox);
        if (runs && !listed.shim_alive) return fail(dead_shim(listed.sandbox));
        Status sent = fail(does_not_run(listed.sandbox));
        if (runs || listed.restart_due_ns) {
            auto connection = TRY(reach_shim(listed.sandbox.id));
            sent = expect_accepted(connection, shim::SignalRequest{signal});
            // A refusal is an answer; without one it went down with the connection.
            // conflict is the shim's own refusal (its state does not allow it); nothing is gained
            // by asking again.
            if (sent || sent.error().code() == Code::conflict) return sent;
        }
        // Between two generations for a moment, or about to be gone.
        if (!listed.shim_alive || deadline.passed()) return sent;
        poll(nullptr, 0, kLaunchGlanceMs);
        listed = TRY(find(listed.sandbox.id.str()));
    }
}

Result<ledger::Exit> EmbeddedService::wait(std::string_view reference)
{
    const Listed listed = TRY(find(reference));
    // A recorded exit is final for its generation: no process has to be asked.
    if (listed.sandbox.exit) return *listed.sandbox.exit;
    if (ledger::rests(listed.sandbox)) {
        return fail(Code::conflict, listed.sandbox.name.str() + " has no exit status (state " +
                                        std::string(ledger::to_string(listed.sandbox.state)) + ")");
    }
    if (!listed.shim_alive) return fail(dead_shim(listed.sandbox));
    auto connection = reach_shim(listed.sandbox.id);
    if (connection && connection->send(shim::WaitRequest{})) {
        // The shim may send other replies before the one that ends the wait.
        while (const auto reply = TRY(connection->receive(sys::Deadline::never()))) {
            if (const auto* ended = std::get_if<shim::Ended>(&*reply)) return ended->exit;
        }
    }
    // It ended between our look and our knock: the ledger has the status by now.
    TRY_VOID(await_shim_end(listed.sandbox));
    // Looked up by id: the name may belong to another sandbox by now.
    const Listed after = TRY(find(listed.sandbox.id.str()));
    if (after.sandbox.exit) return *after.sandbox.exit;
    return fail(dead_shim(after.sandbox));
}

Result<CopyResult> EmbeddedService::copy(const CopyRequest& request)
{
    const Listed listed = TRY(find(request.reference));
    if (listed.sandbox.state != ledger::State::running) {
        return fail(Code::conflict, listed.sandbox.name.str() + " does not run (state " +
                                        std::string(ledger::to_string(listed.sandbox.state)) +
                                        "): files are copied by the running sandbox itself");
    }
    if (!listed.shim_alive) return fail(dead_shim(listed.sandbox));
    // By id, so that the plan is that of the sandbox looked at above.
    const plan::ExecutionPlan plan = TRY(plan_of(listed.sandbox.id.str()));
    // Where the shim listens, so does its door.
    TRY(reach_shim(listed.sandbox.id));
    const LoadedConfig loaded = load_config(host_.paths.config);
    if (!loaded.config) {
        return fail(Code::invalid_argument, host_.paths.config +
                                                " is not usable, and may limit copies: see "
                                                "'sandboxctl config check'");
    }
    CopyRequest bounded = request;
    if (const auto& most = loaded.config->copy_limit) {
        const auto asked = request.most_bytes != 0 ? request.most_bytes : tar::Limits{}.bytes;
        bounded.most_bytes = std::min(asked, most->count);
    }
    return copy_files(host_.paths.run_of(listed.sandbox.id), plan, bounded);
}

Result<Report> EmbeddedService::clean_dead(const ledger::Sandbox& sandbox)
{
    // The cached connection may have been opened for reading only.
    ledger_.reset();
    ledger::Ledger* ledger = TRY(this->ledger(ledger::OpenMode::read_write));
    // Of today's config, for the parents only: each entry names its own cgroup.
    const std::string parent = host_.cgroup_parent();
    const OpenContext open = TRY(open_context(host_.paths, parent));
    Report report = TRY(reconcile_one(*ledger, open.context, sandbox.id));
    // A shim that was killed could not leave its cgroup; one that others are in stays.
    TRY_VOID(sys::cgroup::remove_if_empty(open.context.cgroups, driver::shims_cgroup(parent)));
    TRY_VOID(sys::cgroup::remove_if_empty(open.context.cgroups, parent));
    return report;
}

Status EmbeddedService::remove(std::string_view reference, Force force)
{
    Listed listed = TRY(find(reference));
    if (listed.sandbox.state == ledger::State::deleted) {
        return fail(Code::not_found,
                    "no sandbox '" + std::string(reference) + "' (it was removed)");
    }
    failpoint("rm.begin");
    const bool runs = ledger::is_active(listed.sandbox.state) || listed.restart_due_ns;
    // A shim that waits between two generations counts as running for rm.
    if (listed.shim_alive && (runs || force == Force::yes)) {
        if (force == Force::no) {
            return fail(Code::conflict,
                        listed.sandbox.name.str() + " runs: stop it first, or rm -f");
        }
        // A launch in progress has no socket yet; its shim is ended by identity then.
        if (!stop(listed.sandbox.id.str(), Millis{0})) {
            const auto process = sys::Pidfd::open(*listed.sandbox.shim);
            if (process) static_cast<void>(process->send_signal(SIGKILL));
        }
    }
    failpoint("rm.stopped");
    // Before the cleaning: nothing may be undone under a shim that still builds.
    TRY_VOID(await_shim_end(listed.sandbox));
    failpoint("rm.shim-gone");
    TRY(clean_dead(listed.sandbox));
    ledger_.reset();
    ledger::Ledger* ledger = TRY(this->ledger(ledger::OpenMode::read_write));
    const Status removed = remove_resting(host_, *ledger, listed.sandbox.id);
    if (removed) return {};
    // Two rm at once are legal: the ledger lets only one of them delete the row.
    // Another rm was faster: what was asked for is done.
    const auto now = ledger->find(listed.sandbox.id);
    if (now && *now && (*now)->state == ledger::State::deleted) return {};
    return removed;
}

Result<Report> EmbeddedService::reconcile()
{
    ledger::Ledger* ledger = TRY(this->ledger(ledger::OpenMode::create));
    const OpenContext open = TRY(open_context(host_.paths, host_.cgroup_parent()));
    failpoint("reconcile.before");
    Report report = TRY(supervisor::reconcile(*ledger, open.context));
    // What a killed prober left lies beside the cgroups of sandboxes.
    probe::ProbeSettings probing;
    probing.cgroup_parent = host_.cgroup_parent();
    probe::sweep_leftovers(probing);
    failpoint("reconcile.after");
    TRY_VOID(record_reconcile(host_, *ledger, report));
    failpoint("reconcile.recorded");
    // The reply is already decided: emptying the WAL costs the caller nothing that counts.
    TRY_VOID(ledger->compact());
    return report;
}

Result<std::optional<audit::Broken>> EmbeddedService::verify_audit(audit::Head& head)
{
    // The queue first: lines may still wait in the ledger, and their absence is no damage.
    ledger::Ledger* ledger = TRY(this->ledger(ledger::OpenMode::create));
    // Others may append between the flush and the reading. What is broken twice under the same head
    // is broken: the second flush has brought everything up to it into the file.
    constexpr int kAttempts = 20;
    std::optional<std::uint64_t> before;
    for (int attempt = 1;; ++attempt) {
        TRY_VOID(shim::flush_audit(*ledger, host_.paths.state));
        const auto stored = TRY(ledger->audit_head());
        const audit::Head expected = stored.seq == 0 ? audit::Head{}
                                                     : audit::Head{stored.seq, stored.digest};
        auto broken = TRY(check_audit_file(host_.paths.audit(), expected, head));
        if (!broken || before == stored.seq || attempt == kAttempts) return broken;
        before = stored.seq;
    }
}

}  // namespace sandbox::supervisor
