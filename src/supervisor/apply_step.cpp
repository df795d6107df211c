// SPDX-License-Identifier: Apache-2.0
#include "supervisor/apply_step.hpp"

#include <sys/file.h>

#include <cerrno>

#include "base/failpoint.hpp"
#include "shim/audit_log.hpp"
#include "shim/control_protocol.hpp"
#include "supervisor/lifecycle.hpp"
#include "sys/file.hpp"

namespace sandbox::supervisor {

namespace {

using Deed = Applied::Action;

// The shim writes a few files; lowering memory makes the kernel reclaim first.
constexpr Millis kUpdateAnswer{30'000};
// 16 of 64 hex digits tell the plans of one sandbox apart; the full digest is checked by the
// reader.
constexpr std::size_t kDigestPrefix = std::string_view("sha256:").size();
constexpr std::size_t kShortDigest = 16;

// Another name for each plan: the one in force is never written over.
std::string plan_name(const plan::ExecutionPlan& plan)
{
    return "plan-" + plan.digest().str().substr(kDigestPrefix, kShortDigest) + ".json";
}

}  // namespace

Result<sys::UniqueFd> take_turn(const Paths& paths)
{
    // The lock is on the folder itself: there is no lock file to be left behind or to be replaced.
    TRY_VOID(sys::make_dirs(paths.state));
    auto folder = TRY(sys::open_dir(paths.state));
    while (flock(folder.get(), LOCK_EX) != 0) {
        if (errno != EINTR) return fail_errno("flock", paths.state);
    }
    return folder;
}

Result<ledger::Ledger*> StepRunner::ledger()
{
    if (!ledger_) {
        ledger_.emplace(TRY(
            ledger::Ledger::open(HostPath(service_.host().paths.state), ledger::OpenMode::create)));
    }
    return &*ledger_;
}

void StepRunner::act(const desired::Step& step, const desired::Present* present, Applied& item)
{
    made_.reset();
    const Status done = perform(step, present);
    if (!done) item.failure = done.error().message();
}

Status StepRunner::perform(const desired::Step& step, const desired::Present* present)
{
    // `break` leads on to adopt(); what returns has no row to adopt, or made it with its own.
    switch (step.action) {
    case Deed::keep:
    case Deed::refuse: return {};
    case Deed::create: return create(step);
    case Deed::remove: return remove(*present);
    case Deed::start: TRY_VOID(start(step, *present)); break;
    case Deed::replace: return replace(step, *present);
    case Deed::update: TRY_VOID(update(*present, *step.plan)); break;
    case Deed::nothing: break;
    }
    return step.adopt ? adopt(step.behind) : Status{};
}

Status StepRunner::create(const desired::Step& step)
{
    // The same call as `sandboxctl run -d`: no second way to make a sandbox, and no console of
    // ours.
    RunRequest request(*step.plan);
    request.name = step.name;
    request.attach = Attach::detached;
    request.console = {};
    // Goes into the row's first commit: a crash never leaves a sandbox that nobody stands behind.
    request.managed = step.behind;
    failpoint("apply.before-create");
    const RunResult result = TRY(service_.run(request));
    made_ = result.id;
    failpoint("apply.created");
    if (result.exit_status == 0 && result.why.empty()) return {};
    return fail(Code::unavailable, result.why.empty() ? "it did not start" : result.why);
}

Status StepRunner::start(const desired::Step& step, const desired::Present& present)
{
    // What a dead shim left is cleaned up first, by the same call that a person would use.
    const auto started = service_.start(present.row.id.str(), Attach::detached, {});
    if (started) {
        if (started->exit_status == 0 && started->why.empty()) return {};
        return fail(Code::unavailable, started->why.empty() ? "it did not start" : started->why);
    }
    // A launch that never came to its end has nothing that could be started again.
    return replace(step, present);
}

Status StepRunner::replace(const desired::Step& step, const desired::Present& present)
{
    failpoint("apply.before-replace");
    // Whether it may run at all any more is asked while it still does.
    const auto before = present.alive && present.managed
                            ? stored_plan(service_.host(), present.row)
                            : Result<plan::ExecutionPlan>(fail(Code::not_found, "it did not run"));
    TRY_VOID(remove(present));
    failpoint("apply.replaced-is-gone");
    Status made = create(step);
    if (made || !present.alive) return made;
    return bring_back(step, present, before, std::move(made));
}

// Most of what can be wrong shows when a plan is made. The rest shows at a launch, when the sandbox
// that ran well is gone already: it comes back by its own plan, as another one of the same name.
Status StepRunner::bring_back(const desired::Step& step, const desired::Present& present,
                              const Result<plan::ExecutionPlan>& before, Status failed)
{
    const Error why = std::move(failed).error();
    const auto add = [&](const std::string& text) -> Status {
        return fail(why.code(), why.message() + "; " + text);
    };
    if (!before) return add("the one before cannot come back: " + before.error().message());
    // What is left of the launch that failed has the name.
    const auto left = made_ ? service_.find(made_->str()) : service_.find(step.name);
    if (left && (made_ || !ledger::is_active(left->sandbox.state)))
        static_cast<void>(service_.remove(left->sandbox.id.str(), SandboxService::Force::yes));
    made_.reset();
    RunRequest request(*before);
    request.name = step.name;
    request.attach = Attach::detached;
    request.console = {};
    request.managed = present.managed;
    failpoint("apply.before-return");
    const auto again = service_.run(request);
    failpoint("apply.returned");
    if (again && again->exit_status == 0 && again->why.empty())
        return add("the one before runs again");
    return add("the one before does not come back either: " +
               (again ? again->why : again.error().message()));
}

Status StepRunner::remove(const desired::Present& present)
{
    if (present.alive) {
        // Politely first, with the stop timeout of its profile; what does not obey is removed
        // anyway.
        static_cast<void>(service_.stop(present.row.id.str(), std::nullopt));
    }
    failpoint("apply.stopped");
    return service_.remove(present.row.id.str(), SandboxService::Force::yes);
}

Status StepRunner::update(const desired::Present& present, const plan::ExecutionPlan& plan)
{
    const std::string name = plan_name(plan);
    const SandboxId& id = present.row.id;
    const auto folder = TRY(sys::open_dir(service_.host().paths.state_of(id)));
    // On the disk before the shim is asked: it takes the plan by name and digest, not by bytes.
    TRY_VOID(
        sys::replace_file_at(folder.get(), name, TRY(plan::encode_file(plan)), S_IRUSR | S_IWUSR));
    failpoint("apply.plan-written");
    const auto ask = [&]() -> Status {
        auto connection = TRY(service_.reach_shim(id));
        TRY_VOID(connection.send(shim::UpdateRequest{name, plan.digest().str()}));
        const auto reply = TRY(connection.receive(sys::Deadline::after(kUpdateAnswer)));
        if (reply && std::holds_alternative<shim::Accepted>(*reply)) return {};
        // A rejection is the shim's word that the old plan still holds. Silence is not.
        const auto* rejected = reply ? std::get_if<shim::Rejected>(&*reply) : nullptr;
        if (rejected != nullptr) return fail(Code::conflict, rejected->why);
        return fail(Code::unavailable, "the shim ended before it answered");
    };
    const Status done = ask();
    // Unless it was taken, nobody needs the file; unless the answer says so, nobody knows.
    if (!done && done.error().code() == Code::conflict) {
        static_cast<void>(sys::unlink_at(folder.get(), name));
    }
    return done;
}

Status StepRunner::adopt(const ledger::Managed& managed)
{
    // A commit of its own: what stands behind a sandbox may change without any effect on the host.
    auto transaction = TRY(TRY(ledger())->begin());
    TRY_VOID(transaction.set_managed(managed));
    return transaction.commit();
}

Status StepRunner::write_event(const desired::Step& step, const desired::Present* present,
                               const Applied& item)
{
    ledger::Ledger* ledger = TRY(this->ledger());
    audit::Applied event;
    event.action = to_string(step.action);
    // From here on a plain list of facts: who reads the audit log has no other source for the why.
    event.source = step.file;
    if (step.plan) event.plan_digest = step.plan->digest().str();
    for (const plan::Change& change : step.changes) event.keys.push_back(change.key);
    event.why = item.why;
    event.failure = item.failure;
    for (const Diagnostic& d : item.errors.diagnostics) {
        event.failure += (event.failure.empty() ? "" : "; ") + format(d);
    }
    const auto now = TRY(ledger::now());
    audit::Subject subject{{}, SandboxName(step.name), 0, {}, now.utc};
    if (present != nullptr) {
        subject.id = present->row.id;
        subject.generation = present->row.generation;
        event.previous_digest = present->row.plan_digest;
    }
    // A sandbox that this step made is at its first generation.
    if (made_) subject = {*made_, SandboxName(step.name), 1, {}, now.utc};
    if (!item.denials.empty()) {
        TRY_VOID(record_denial(service_.host(), *ledger, step.name, item.denials));
    }
    auto transaction = TRY(ledger->begin());
    TRY_VOID(shim::queue_audit(*ledger, transaction, subject, {std::move(event)}));
    return transaction.commit();
}

void StepRunner::record(const desired::Step& step, const desired::Present* present,
                        const Applied& item)
{
    if (step.action == Deed::nothing) return;
    // What was done is done; that it cannot be written down is seen by `audit verify`'s reader
    // only.
    static_cast<void>(write_event(step, present, item));
}

// Failure is fine: the lines wait in the ledger, and the next flush writes them.
void StepRunner::settle()
{
    if (ledger_) static_cast<void>(shim::flush_audit(*ledger_, service_.host().paths.state));
}

}  // namespace sandbox::supervisor
