// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "shim/generation.hpp"
#include "shim/health.hpp"
#include "shim/journal.hpp"
#include "shim/loop.hpp"

namespace sandbox::shim {

// The leaf below workload/ that every check of a sandbox is born in.
// Not a name that a session can have ("s" or "x" and a number).
inline constexpr std::string_view kHealthSession = "health";
// RUN/ID/health.json: {"health","failures","detail"}, for `inspect`. Written when something
// changes.
inline constexpr const char* kHealthName = "health.json";

// Runs health.argv as a session inside, with the process's own user, environment and limits, its
// descriptors on /dev/null, and keeps count. One check at a time. The leaf's ledger entry goes with
// the generation.
class HealthCheck {
public:
    // Requires: the plan has a health check; loop, generation and journal outlive this. `changed`
    // is told once the audit has it.
    HealthCheck(Loop& loop, Generation& generation, Journal& journal,
                std::function<void(Health)> changed);
    ~HealthCheck();
    HealthCheck(const HealthCheck&) = delete;
    HealthCheck& operator=(const HealthCheck&) = delete;

    // The first check comes after one interval.
    [[nodiscard]] Status start();
    // A check that runs is given up without a verdict, and none begins until release(): a frozen
    // sandbox cannot answer, and that is no sign of bad health.
    void hold();
    void release();
    void stop();

private:
    void again();
    void begin();
    [[nodiscard]] Status open();
    void on_message();
    bool take(const wire::SessionMessage& message);  // true: the check is over
    void conclude(bool passed, std::string detail);
    void abandon();
    [[nodiscard]] Status save() const;

    Loop& loop_;
    Generation& generation_;
    Journal& journal_;
    const profile::Health health_;
    HealthRecord record_;
    std::function<void(Health)> changed_;
    std::unique_ptr<SessionStream> session_;
    std::optional<driver::SessionLeaf> leaf_;
    std::optional<Loop::Token> watch_;
    std::optional<Loop::Token> timer_;
    std::optional<Loop::Token> late_;
    bool held_ = false;
    bool stopped_ = false;
};

}  // namespace sandbox::shim
