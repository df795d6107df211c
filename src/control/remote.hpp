// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <set>
#include <string>

#include "control/client.hpp"
#include "supervisor/service.hpp"

namespace sandbox::control {

// SandboxService of a daemon: the same calls, answered by another process.
// Blocking; one call at a time; not thread-safe. Errors are the daemon's own, and unavailable where
// it went away: what it had begun goes on there.
class RemoteService final : public supervisor::SandboxService {
public:
    // not_found: no daemon. unavailable, deadline_exceeded: one that does not answer as ours do.
    [[nodiscard]] static Result<std::unique_ptr<RemoteService>> connect(
        const std::string& socket_path);

    Result<supervisor::PlanOutcome> plan(const supervisor::ProfileText& profile,
                                         const supervisor::Adjustments& adjustments,
                                         const facts::CapabilitySnapshot* elsewhere) override;
    Result<supervisor::PlanOutcome> plan_again(std::string_view plan_file) override;
    Result<supervisor::RunResult> run(const supervisor::RunRequest& request) override;
    Result<supervisor::RunResult> create(const supervisor::RunRequest& request) override;
    Result<supervisor::RunResult> start(std::string_view reference, supervisor::Attach attach,
                                        const supervisor::Console& console) override;
    Status restart(std::string_view reference, std::optional<Millis> timeout) override;
    Status pause(std::string_view reference) override;
    Status resume(std::string_view reference) override;
    Status touch(std::string_view reference) override;
    Result<supervisor::Stats> stats(std::string_view reference) override;
    Status events(const supervisor::EventQuery& query, const supervisor::EventSink& sink) override;
    Result<supervisor::SessionResult> exec(const supervisor::ExecRequest& request) override;
    Result<supervisor::SessionResult> attach(const supervisor::AttachRequest& request) override;
    Result<std::vector<supervisor::SessionInfo>> sessions(std::string_view reference) override;
    Status signal_session(std::string_view reference, std::string_view session,
                          int signal) override;
    Result<supervisor::CopyResult> copy(const supervisor::CopyRequest& request) override;
    Result<supervisor::ApplyResult> apply(const supervisor::ApplyRequest& request) override;
    Result<std::vector<supervisor::Listed>> list(bool all) override;
    Result<canon::Json> inspect(std::string_view reference) override;
    Result<plan::ExecutionPlan> plan_of(std::string_view reference) override;
    Status logs(const supervisor::LogQuery& query, const supervisor::LogSink& sink) override;
    Status stop(std::string_view reference, std::optional<Millis> timeout) override;
    Status kill(std::string_view reference, int signal) override;
    Result<ledger::Exit> wait(std::string_view reference) override;
    Status remove(std::string_view reference, Force force) override;
    Result<supervisor::Report> reconcile() override;
    Result<std::optional<audit::Broken>> verify_audit(audit::Head& head) override;

private:
    explicit RemoteService(HttpClient client) : client_(std::move(client)) {}
    [[nodiscard]] Status greet();
    // What the daemon cannot do is refused here, before it is asked.
    [[nodiscard]] Status require(const char* capability) const;
    [[nodiscard]] Result<canon::Json> ask(const char* capability, std::string_view method,
                                          const std::string& target, std::string_view body = {});
    [[nodiscard]] Status act(const char* capability, std::string_view reference,
                             const std::string& verb);
    [[nodiscard]] Result<canon::Json> stream(const char* capability, const std::string& target,
                                             const canon::Json& body,
                                             const supervisor::Console& console, bool input);
    [[nodiscard]] Result<supervisor::PlanOutcome> plan_body(const canon::Json& body);
    [[nodiscard]] Result<canon::Json> run_body(const supervisor::RunRequest& request);

    HttpClient client_;
    std::set<std::string> capabilities_;
    // The request that was refused last: `run` of its denials lets the daemon refuse it again and
    // record that.
    std::string refused_;
};

}  // namespace sandbox::control
