// SPDX-License-Identifier: Apache-2.0
#include "permits.hpp"

#include <algorithm>
#include <limits>

namespace sandbox::property {

namespace {

bool is_below(const std::string& path, const std::string& folder)
{
    return path == folder || (path.size() > folder.size() && path.starts_with(folder) &&
                              (folder == "/" || path[folder.size()] == '/'));
}

bool is_masked(const plan::PlanContent& plan, const std::string& path)
{
    return std::any_of(plan.masks.begin(), plan.masks.end(),
                       [&](const GuestPath& mask) { return is_below(path, mask.str()); });
}

// The deepest mount that holds the path.
const plan::MountPlan* mount_of(const plan::PlanContent& plan, const std::string& path)
{
    const plan::MountPlan* found = nullptr;
    for (const plan::MountPlan& mount : plan.mounts) {
        if (!is_below(path, mount.target.str())) continue;
        if (found == nullptr || found->target.str().size() < mount.target.str().size()) {
            found = &mount;
        }
    }
    return found;
}

// The smallest value among the named files; nothing written means no limit.
std::uint64_t limit(const plan::PlanContent& plan, std::initializer_list<const char*> files)
{
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    for (const plan::CgroupSetting& setting : plan.resources.workload) {
        for (const char* file : files) {
            if (setting.file == file)
                least = std::min(least, std::uint64_t{std::stoull(setting.value)});
        }
    }
    return least;
}

bool judge(const plan::PlanContent& plan, const ReadFile& read)
{
    if (is_masked(plan, read.path)) return false;
    if (mount_of(plan, read.path) != nullptr) return true;
    return plan.rootfs.kind == "dir" || is_below(read.path, "/usr") || is_below(read.path, "/etc");
}

bool judge(const plan::PlanContent& plan, const WriteHostFile& write)
{
    if (is_masked(plan, write.path)) return false;
    const plan::MountPlan* mount = mount_of(plan, write.path);
    // A root never writes through: it is read-only or below a tmpfs.
    return mount != nullptr && mount->type == profile::MountType::bind && !mount->read_only &&
           plan.process.uid != 0;
}

bool judge(const plan::PlanContent& plan, const ReachHostNetwork& /*action*/)
{
    const auto& spaces = plan.security.namespaces;
    return std::find(spaces.begin(), spaces.end(), "net") == spaces.end();
}

bool judge(const plan::PlanContent& plan, const UseCapability& use)
{
    const auto& held = plan.security.capabilities;
    return std::find(held.begin(), held.end(), use.name) != held.end();
}

bool judge(const plan::PlanContent& plan, const HoldMemory& hold)
{
    return hold.bytes <= limit(plan, {"memory.limit_in_bytes", "memory.max"});
}

bool judge(const plan::PlanContent& plan, const HaveProcesses& have)
{
    return have.count <= limit(plan, {"pids.max"});
}

bool judge(const plan::PlanContent& plan, const UseCpus& use)
{
    // Both spellings are microseconds in a period of 100000.
    return std::uint64_t{use.thousandths} * 100 <= limit(plan, {"cpu.cfs_quota_us", "cpu.max"});
}

bool judge(const plan::PlanContent& plan, const SeeHost& see)
{
    const auto& spaces = plan.security.namespaces;
    return std::find(spaces.begin(), spaces.end(), see.what) == spaces.end();
}

}  // namespace

bool permits(const plan::PlanContent& plan, const Action& action)
{
    return std::visit([&](const auto& one) { return judge(plan, one); }, action);
}

}  // namespace sandbox::property
