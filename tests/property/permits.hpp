// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>

#include "plan/plan.hpp"

// What a sealed plan lets a workload do, judged from the plan alone. Written apart from the
// resolver and sharing nothing with it: two readings of one plan must agree.
namespace sandbox::property {

struct ReadFile {
    std::string path;
};
struct WriteHostFile {  // a file that is there on the host afterwards
    std::string path;
};
struct ReachHostNetwork {};
struct UseCapability {
    std::string name;
};
struct HoldMemory {
    std::uint64_t bytes = 0;
};
struct HaveProcesses {
    std::uint32_t count = 0;
};
struct UseCpus {
    std::uint32_t thousandths = 0;
};
struct SeeHost {
    std::string what;  // a namespace kind that must be shared for it
};

using Action = std::variant<ReadFile, WriteHostFile, ReachHostNetwork, UseCapability, HoldMemory,
                            HaveProcesses, UseCpus, SeeHost>;

bool permits(const plan::PlanContent& plan, const Action& action);

}  // namespace sandbox::property
