// SPDX-License-Identifier: Apache-2.0
#include "shim/freezer.hpp"

#include "driver/groups.hpp"

namespace sandbox::shim {

namespace {

// Tasks stop at their next return to user space: milliseconds, unless they wait for a device.
constexpr Millis kFreezeDeadline{2'000};

Result<sys::cgroup::CgroupTree> workload_of(const std::string& cgroup)
{
    // Found anew each time: the layout of the host's cgroups does not change, but a handle kept for
    // days would pin what an update may replace.
    const sys::cgroup::Host host = TRY(driver::host_cgroups());
    auto tree = TRY(sys::cgroup::CgroupTree::find(host, cgroup + "/workload"));
    if (tree.empty()) return fail(Code::not_found, "no cgroup " + cgroup + "/workload");
    return tree;
}

}  // namespace

Status freeze_workload(const std::string& cgroup)
{
    const auto tree = TRY(workload_of(cgroup));
    const Status frozen = tree.freeze(sys::Deadline::after(kFreezeDeadline));
    if (frozen) return {};
    // Half-frozen is worse than running: a part of the workload would wait for another for ever.
    if (auto thawed = tree.thaw(sys::Deadline::after(kFreezeDeadline)); !thawed) {
        return fail(std::move(thawed).error().with(frozen.error().message()));
    }
    return frozen;
}

Status thaw_workload(const std::string& cgroup)
{
    const auto tree = TRY(workload_of(cgroup));
    return tree.thaw(sys::Deadline::after(kFreezeDeadline));
}

}  // namespace sandbox::shim
