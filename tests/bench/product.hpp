// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "command_line.hpp"
#include "ledger/ledger.hpp"
#include "plan/plan.hpp"
#include "supervisor/host.hpp"
#include "timed.hpp"

// sandboxctl with a --root of its own, which goes with everything in it.
namespace sandbox::bench {

inline constexpr const char* kPath =
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

class Product {
public:
    // Makes the root and its config.toml, and probes the host once.
    [[nodiscard]] static Result<Product> make(const Options& options);

    const std::string& work() const { return work_; }
    const supervisor::Host& host() const { return *host_; }
    const supervisor::Paths& paths() const { return host_->paths; }
    // examples/01-hello.toml with /bin/true.
    const plan::ExecutionPlan& plan() const { return *plan_; }

    Command command(std::vector<std::string> words) const;
    Command run(const std::vector<std::string>& options,
                const std::vector<std::string>& argv) const;
    // The same with the native driver.
    Command run_native(const std::vector<std::string>& options,
                       const std::vector<std::string>& argv) const;

    [[nodiscard]] Result<ledger::Ledger> ledger() const;
    // What is left after removing everything.
    std::vector<std::string> remove();

private:
    std::string bin_;
    std::string work_;     // mkdtemp; the root is work/root
    std::string profile_;  // path
    std::string native_;   // path of the same profile with driver = "native"
    std::optional<supervisor::Host> host_;
    std::optional<plan::ExecutionPlan> plan_;
};

// When the steps of a launch were over, medians of milliseconds since the command was started.
struct PhaseTimes {
    std::vector<std::pair<std::string, double>> at;
};
[[nodiscard]] Result<PhaseTimes> measure_launch(const Product& product, const Options& options);

struct ResidentMemory {
    std::uint64_t shim_pss = 0;  // KiB
    std::uint64_t shim_rss = 0;
    std::uint64_t log_pss = 0;
    std::uint64_t log_rss = 0;
};
[[nodiscard]] Result<ResidentMemory> measure_memory(const Product& product);

[[nodiscard]] Result<plan::ExecutionPlan> plan_of(const supervisor::Host& host,
                                                  const std::string& toml);

}  // namespace sandbox::bench
