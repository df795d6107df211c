// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "supervisor/host.hpp"
#include "supervisor/launch.hpp"
#include "supervisor/service.hpp"

namespace sandbox::supervisor {

enum class Need {
    plan,    // config, policy, facts
    launch,  // the same, and a shim started early
    ledger,  // nothing of the host but where things are
};

// The service in this very process: same state, same ledger as every other, safe side by side.
class EmbeddedService final : public SandboxService {
public:
    [[nodiscard]] static Result<std::unique_ptr<EmbeddedService>> open(const Paths& paths,
                                                                       Need need);
    ~EmbeddedService() override;

    const Host& host() const { return host_; }

    Result<PlanOutcome> plan(const ProfileText& profile, const Adjustments& adjustments,
                             const facts::CapabilitySnapshot* elsewhere) override;
    Result<PlanOutcome> plan_again(std::string_view plan_file) override;
    Result<RunResult> run(const RunRequest& request) override;
    Result<std::vector<Listed>> list(bool all) override;
    Result<canon::Json> inspect(std::string_view reference) override;
    Result<plan::ExecutionPlan> plan_of(std::string_view reference) override;
    Status logs(const LogQuery& query, const LogSink& sink) override;
    Result<CopyResult> copy(const CopyRequest& request) override;
    Status stop(std::string_view reference,
                std::optional<std::chrono::milliseconds> timeout) override;
    Status kill(std::string_view reference, int signal) override;
    Result<ledger::Exit> wait(std::string_view reference) override;
    Status remove(std::string_view reference, Force force) override;
    Result<Report> reconcile() override;
    Result<std::optional<audit::Broken>> verify_audit(audit::Head& head) override;

    // Where a sandbox's records are, for `logs`; and whether more may come.
    [[nodiscard]] Result<Listed> find(std::string_view reference);

private:
    explicit EmbeddedService(Host host) : host_(std::move(host)) {}
    [[nodiscard]] Result<ledger::Ledger*> ledger(ledger::OpenMode mode);
    [[nodiscard]] Result<ShimConnection> reach_shim(const SandboxId& id);
    [[nodiscard]] Status await_shim_end(const ledger::Sandbox& sandbox);
    [[nodiscard]] Result<Report> clean_dead(const ledger::Sandbox& sandbox);

    Host host_;
    std::optional<EarlyShim> early_;
    std::optional<ledger::Ledger> ledger_;
};

}  // namespace sandbox::supervisor
