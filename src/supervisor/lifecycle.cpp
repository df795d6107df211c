// SPDX-License-Identifier: Apache-2.0
#include "supervisor/lifecycle.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>

#include "base/failpoint.hpp"
#include "driver/resources.hpp"
#include "shim/audit_log.hpp"
#include "supervisor/context.hpp"
#include "supervisor/planning.hpp"
#include "sys/file.hpp"

namespace sandbox::supervisor {

namespace {

using ledger::EntryKind;

// Two folders and a file: if it takes longer, whoever does it is stuck.
constexpr std::uint64_t kCreationNs = 60ULL * 1'000'000'000ULL;
constexpr std::size_t kMostStoredPlan = 16U << 20;

class Creation {
public:
    Creation(const Host& host, ledger::Ledger& ledger, const plan::ExecutionPlan& plan,
             ledger::Sandbox row)
        : host_(host), ledger_(ledger), plan_(plan), row_(std::move(row)),
          operation_("create-" + row_.id.str())
    {
    }

    Status intend(const RunRequest& request)
    {
        // The claim is this process's: if it dies half-way, reconcile takes over.
        self_ = TRY(sys::identity_of(getpid()));
        const std::array<ledger::Intent, 2> intents{
            ledger::Intent{EntryKind::state_dir,
                           driver::resource_name(EntryKind::state_dir, row_.id, "")},
            ledger::Intent{EntryKind::log_files,
                           driver::resource_name(EntryKind::log_files, row_.id, "")}};
        failpoint("create.before-intent");
        // Before anything new: a full disk must leave room to end what runs.
        TRY_VOID(ledger_.keep_reserve());
        auto transaction = TRY(ledger_.begin());
        // First, so that a name that is taken fails before anything else is written.
        TRY_VOID(transaction.insert(row_));
        if (request.managed) {
            ledger::Managed managed = *request.managed;
            managed.sandbox = row_.id;
            // In the same commit as the row: no moment in which a file's sandbox looks like a
            // person's.
            TRY_VOID(transaction.set_managed(managed));
        }
        TRY(transaction.allocate_ids(row_.id, {host_.config.id_base, host_.config.id_ranges}));
        // Undone in reverse: the logs' folder lies in the state folder.
        first_ = TRY(transaction.intend(row_.id, intents));
        TRY_VOID(transaction.set_state(row_.id, ledger::State::prepared));
        TRY(transaction.claim({operation_, row_.id, "create", row_.plan_digest, self_, "folders",
                               row_.created.boottime_ns + kCreationNs},
                              row_.created, is_alive));
        TRY_VOID(tell(transaction, {audit::resolved(plan_)}));
        TRY_VOID(transaction.commit());
        failpoint("create.after-intent");
        return {};
    }

    Status act()
    {
        const std::string state = host_.paths.state_of(row_.id);
        // Makes the state folder on the way. Both intents are durable by now.
        TRY_VOID(sys::make_dirs(host_.paths.logs_of(row_.id)));
        failpoint("effect.created-folders");
        const auto folder = TRY(sys::open_dir(state));
        state_ = TRY(sys::identity_of_fd(folder.get()));
        // The identity of what we made, so that reconcile removes this folder and no other of that
        // name.
        const auto logs = TRY(sys::open_dir(host_.paths.logs_of(row_.id)));
        logs_ = TRY(sys::identity_of_fd(logs.get()));
        const auto file = TRY(sys::open_at2(folder.get(), "plan.json", O_WRONLY | O_CREAT | O_TRUNC,
                                            0600, sys::kBeneath));
        TRY_VOID(sys::write_all(file.get(), TRY(plan::encode_file(plan_))));
        // It may rest for long: a start after a power cut needs it.
        if (fsync(file.get()) != 0 || fsync(folder.get()) != 0) return fail_errno("fsync", state);
        failpoint("effect.created-plan");
        return {};
    }

    Status finish()
    {
        auto transaction = TRY(ledger_.begin());
        // observed() and the state in one commit: a `created` row always has its folders'
        // identities.
        TRY_VOID(transaction.observed(first_, ledger::encode(state_)));
        TRY_VOID(transaction.observed(first_ + 1, ledger::encode(logs_)));
        TRY_VOID(transaction.set_state(row_.id, ledger::State::created));
        TRY_VOID(tell(transaction, {audit::Acted{"create", ""}}));
        TRY_VOID(transaction.finish(operation_, self_, "{}"));
        failpoint("create.before-commit");
        TRY_VOID(transaction.commit());
        failpoint("create.after-commit");
        return {};
    }

    // Nothing of it can run: it rests as a launch that failed does.
    Status give_up(const Error& why)
    {
        // The folders stay until rm: what is there may tell why it failed.
        auto transaction = TRY(ledger_.begin());
        TRY_VOID(transaction.set_state(row_.id, ledger::State::failed));
        TRY_VOID(tell(transaction,
                      {audit::LaunchFailed{row_.plan_digest, "create", why.message(), {}}}));
        TRY_VOID(transaction.finish(operation_, self_, "{}"));
        return transaction.commit();
    }

private:
    Status tell(ledger::Transaction& transaction, std::vector<audit::Body> bodies)
    {
        const ledger::Moment now = TRY(ledger::now());
        return shim::queue_audit(ledger_, transaction,
                                 {row_.id, row_.name, row_.generation, operation_, now.utc},
                                 std::move(bodies));
    }

    const Host& host_;
    ledger::Ledger& ledger_;
    const plan::ExecutionPlan& plan_;
    ledger::Sandbox row_;
    std::string operation_;
    sys::ProcessIdentity self_;
    std::uint64_t first_ = 0;
    sys::FileIdentity state_;
    sys::FileIdentity logs_;
};

// All reasons in one message, as `plan` would list them.
std::string reasons(const PlanOutcome& outcome)
{
    std::string text;
    if (const auto* denials = std::get_if<std::vector<resolve::Denial>>(&outcome)) {
        for (const resolve::Denial& denial : *denials) {
            text += "\n  " + denial.key + ": " + denial.requirement + ": " + denial.fact + "; " +
                    denial.mend;
        }
    }
    if (const auto* errors = std::get_if<ProfileErrors>(&outcome)) {
        for (const Diagnostic& flaw : errors->diagnostics) text += "\n  " + format(flaw);
    }
    return text;
}

}  // namespace

Result<RunResult> create_resting(const Host& host, ledger::Ledger& ledger,
                                 const plan::ExecutionPlan& plan, const RunRequest& request)
{
    const SandboxId id = TRY(ledger::new_sandbox_id());
    ledger::Sandbox row = TRY(describe_new(host, id, plan, request));
    RunResult result;
    result.id = id;
    result.name = row.name;
    Creation creation(host, ledger, plan, std::move(row));
    TRY_VOID(creation.intend(request));
    if (auto made = creation.act(); !made) {
        TRY_VOID(creation.give_up(made.error()));
        return fail(std::move(made).error().with("create " + result.name.str()));
    }
    TRY_VOID(creation.finish());
    TRY_VOID(shim::flush_audit(ledger, host.paths.state));
    result.exit_status = 0;
    return result;
}

Result<plan::ExecutionPlan> stored_plan(const Host& host, const ledger::Sandbox& sandbox)
{
    const std::string name = sandbox.name.str();
    const std::string text = TRY_WITH(sys::read_file(sandbox.plan_path, kMostStoredPlan),
                                      "the plan of " + name);
    const auto stored = TRY_WITH(plan::decode_file(text), "the plan of " + name);
    // The digest in the row is the one that policy was asked about; a file edited since must not
    // run.
    if (stored.digest().str() != sandbox.plan_digest) {
        return fail(Code::denied, sandbox.plan_path + " is not the plan that " + name +
                                      " was made with: remove it and run its profile again");
    }
    // Today's policy and facts decide: a digest proves identity, not permission.
    auto outcome = TRY_WITH(make_plan_again(host, text), "start " + name);
    if (auto* plan = std::get_if<plan::ExecutionPlan>(&outcome)) return std::move(*plan);
    return fail(Code::denied,
                name + " may not start any more: its plan is refused today" + reasons(outcome));
}

}  // namespace sandbox::supervisor
