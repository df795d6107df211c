// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "audit/audit.hpp"
#include "base/diagnostic.hpp"
#include "base/result.hpp"
#include "driver/driver.hpp"
#include "facts/facts.hpp"
#include "ledger/records.hpp"
#include "plan/plan.hpp"
#include "policy/policy.hpp"
#include "resolve/resolve.hpp"
#include "supervisor/reconcile.hpp"

// What a client may ask of sandboxes; the same in process and, later, over a socket.
namespace sandbox::supervisor {

// A profile as a person named it, already read.
struct ProfileText {
    std::string file;  // for diagnostics: a path or "<stdin>"
    std::string text;
};

// What one invocation adds to a profile. Only what a person at the prompt may say: none of it can
// name a driver or widen a grant.
struct Adjustments {
    std::vector<std::string> argv;           // replaces process.argv when not empty
    std::map<std::string, std::string> env;  // added to process.env
    std::optional<ProfileText> overlay;
    bool operator==(const Adjustments&) const = default;
};

struct ProfileErrors {
    std::vector<Diagnostic> diagnostics;
};

// Exactly one of: a plan, the reasons there is none, a profile that does not parse.
using PlanOutcome = std::variant<plan::ExecutionPlan, std::vector<resolve::Denial>, ProfileErrors>;

enum class Attach { foreground, detached };
enum class Keep { until_removed, remove_on_exit };
enum class Stdin { closed, open };

struct RunRequest {
    explicit RunRequest(PlanOutcome outcome) : resolved(std::move(outcome)) {}

    PlanOutcome resolved;  // from plan() or plan_again()
    std::string name;      // empty: "<profile>-<6 hex>"
    Attach attach = Attach::foreground;
    Keep keep = Keep::until_removed;
    Stdin stdin_mode = Stdin::closed;
};

struct RunResult {
    SandboxId id;
    SandboxName name;
    std::optional<ledger::Exit> exit;  // nothing when detached
    int exit_status = 125;             // what the program exits with
    std::string why;                   // of a failed launch
};

struct Listed {
    ledger::Sandbox sandbox;
    bool shim_alive = false;
};

struct LogQuery {
    std::string reference;
    bool follow = false;
};

class SandboxService {
public:
    SandboxService() = default;
    SandboxService(const SandboxService&) = delete;
    SandboxService& operator=(const SandboxService&) = delete;
    virtual ~SandboxService() = default;

    // Resolves against this host, or against a snapshot saved elsewhere.
    [[nodiscard]] virtual Result<PlanOutcome> plan(const ProfileText& profile,
                                                   const Adjustments& adjustments,
                                                   const facts::CapabilitySnapshot* elsewhere) = 0;
    // Resolves the request a plan file carries again; a different result names the keys.
    [[nodiscard]] virtual Result<PlanOutcome> plan_again(std::string_view plan_file) = 0;

    // Blocks until the workload ends, or, detached, until it runs.
    [[nodiscard]] virtual Result<RunResult> run(const RunRequest& request) = 0;

    [[nodiscard]] virtual Result<std::vector<Listed>> list(bool all) = 0;
    [[nodiscard]] virtual Result<canon::Json> inspect(std::string_view reference) = 0;
    [[nodiscard]] virtual Result<plan::ExecutionPlan> plan_of(std::string_view reference) = 0;

    [[nodiscard]] virtual Status stop(std::string_view reference,
                                      std::optional<std::chrono::milliseconds> timeout) = 0;
    [[nodiscard]] virtual Status kill(std::string_view reference, int signal) = 0;
    [[nodiscard]] virtual Result<ledger::Exit> wait(std::string_view reference) = 0;
    enum class Force { no, yes };
    [[nodiscard]] virtual Status remove(std::string_view reference, Force force) = 0;

    [[nodiscard]] virtual Result<Report> reconcile() = 0;
    [[nodiscard]] virtual Result<std::optional<audit::Broken>> verify_audit(audit::Head& head) = 0;
};

}  // namespace sandbox::supervisor
