// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "driver/driver.hpp"
#include "plan/plan.hpp"
#include "sys/cgroup/cgroup.hpp"

namespace sandbox::shim {

// Limits of a running workload while they change: what was written can be put back until it is
// kept. One use. Borrows both plans. Blocks while the kernel reclaims memory. conflict: the kernel
// refuses a limit that is in use; then nothing is changed, or the error names what could not be put
// back.
class LimitChange {
public:
    // Opens the cgroups and passes controllers on where `next` needs more of them. not_found:
    // nothing of it runs.
    [[nodiscard]] static Result<LimitChange> open(const plan::ExecutionPlan& runs,
                                                  const plan::ExecutionPlan& next,
                                                  const driver::Binding& binding);

    // Stops at the first write that the kernel refuses, and puts back those before it.
    [[nodiscard]] Status write();
    // Every limit of `next`, read from the kernel after write().
    [[nodiscard]] Result<std::vector<driver::Evidence>> observe() const;
    // Newest first. What cannot be put back is named.
    [[nodiscard]] Status put_back();

private:
    struct Written {
        const sys::cgroup::CgroupTree* tree;
        sys::cgroup::Setting before;
    };
    LimitChange(const plan::ExecutionPlan& runs, const plan::ExecutionPlan& next)
        : runs_(&runs), next_(&next)
    {
    }
    [[nodiscard]] Status open_trees(const driver::Binding& binding);
    [[nodiscard]] Status write_one(const sys::cgroup::CgroupTree& tree,
                                   const sys::cgroup::Setting& setting);
    [[nodiscard]] Status write_cpuset_v1(const sys::cgroup::Setting& setting);
    [[nodiscard]] Status make_room(const sys::cgroup::Setting& setting);
    Error explain(const Error& error, const sys::cgroup::Setting& setting) const;

    const plan::ExecutionPlan* runs_;
    const plan::ExecutionPlan* next_;
    std::deque<sys::cgroup::CgroupTree> trees_;  // workload first, then its children (v1 cpuset)
    std::string inherited_cpuset_;
    std::vector<Written> written_;
};

}  // namespace sandbox::shim
