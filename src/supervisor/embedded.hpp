// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "supervisor/exec.hpp"
#include "supervisor/host.hpp"
#include "supervisor/launch.hpp"
#include "supervisor/service.hpp"

namespace sandbox::supervisor {

// How much of the host a verb needs: what is not asked for is neither read nor started.
enum class Need {
    plan,    // config, policy, facts
    launch,  // the same, and a shim started early
    ledger,  // nothing of the host but where things are
};

// The service in this very process: same state, same ledger as every other, safe side by side. One
// thread at a time; every call blocks. Errors are the ledger's, the host's and the shim's; a
// sandbox whose shim died is unavailable and says so. Requires: SIGPIPE is ignored; no other thread
// runs when it forks a shim.
class EmbeddedService final : public SandboxService {
public:
    // Errors: with Need::ledger none but out-of-memory; otherwise what load_host() and
    // start_early() say.
    [[nodiscard]] static Result<std::unique_ptr<EmbeddedService>> open(const Paths& paths,
                                                                       Need need);
    ~EmbeddedService() override;

    const Host& host() const { return host_; }

    Result<PlanOutcome> plan(const ProfileText& profile, const Adjustments& adjustments,
                             const facts::CapabilitySnapshot* elsewhere) override;
    Result<PlanOutcome> plan_again(std::string_view plan_file) override;
    Result<RunResult> run(const RunRequest& request) override;
    Result<RunResult> create(const RunRequest& request) override;
    Result<RunResult> start(std::string_view reference, Attach attach,
                            const Console& console) override;
    Status restart(std::string_view reference,
                   std::optional<std::chrono::milliseconds> timeout) override;
    Status pause(std::string_view reference) override;
    Status resume(std::string_view reference) override;
    Status touch(std::string_view reference) override;
    Result<Stats> stats(std::string_view reference) override;
    Status events(const EventQuery& query, const EventSink& sink) override;
    Result<ApplyResult> apply(const ApplyRequest& request) override;
    Result<std::vector<Listed>> list(bool all) override;
    Result<canon::Json> inspect(std::string_view reference) override;
    Result<plan::ExecutionPlan> plan_of(std::string_view reference) override;
    Status logs(const LogQuery& query, const LogSink& sink) override;
    Result<SessionResult> exec(const ExecRequest& request) override;
    Result<SessionResult> attach(const AttachRequest& request) override;
    Result<std::vector<SessionInfo>> sessions(std::string_view reference) override;
    Status signal_session(std::string_view reference, std::string_view session,
                          int signal) override;
    Result<CopyResult> copy(const CopyRequest& request) override;
    Status stop(std::string_view reference,
                std::optional<std::chrono::milliseconds> timeout) override;
    Status kill(std::string_view reference, int signal) override;
    Result<ledger::Exit> wait(std::string_view reference) override;
    Status remove(std::string_view reference, Force force) override;
    Result<Report> reconcile() override;
    Result<std::optional<audit::Broken>> verify_audit(audit::Head& head) override;

    // The row a reference means, and whether its shim lives. not_found, conflict (ambiguous). The
    // answer is of the moment: ask again before acting on it.
    [[nodiscard]] Result<Listed> find(std::string_view reference);

private:
    friend class StepRunner;
    explicit EmbeddedService(Host host) : host_(std::move(host)) {}
    struct Reached {
        ledger::Sandbox sandbox;
        ShimConnection connection;
    };
    // Code::conflict unless it runs or is paused; unavailable when its shim died.
    [[nodiscard]] Result<Reached> reach(std::string_view reference);
    [[nodiscard]] Result<ledger::Sandbox> bring_to_rest(std::string_view reference);
    [[nodiscard]] Status stop_alive(const Listed& listed, Millis timeout);
    [[nodiscard]] Result<ledger::Ledger*> ledger(ledger::OpenMode mode);
    [[nodiscard]] Result<ShimConnection> reach_shim(const SandboxId& id);
    [[nodiscard]] Result<Target> find_target(std::string_view reference);
    [[nodiscard]] Status await_shim_end(const ledger::Sandbox& sandbox);
    [[nodiscard]] Result<Report> clean_dead(const ledger::Sandbox& sandbox);

    Host host_;
    std::optional<EarlyShim> early_;
    std::optional<ledger::Ledger> ledger_;
};

}  // namespace sandbox::supervisor
