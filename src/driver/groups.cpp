// SPDX-License-Identifier: Apache-2.0
#include "driver/groups.hpp"

#include <sys/stat.h>

#include <algorithm>

#include "driver/rootless.hpp"
#include "sys/file.hpp"

namespace sandbox::driver {

namespace cgroup = sys::cgroup;

std::vector<cgroup::Setting> to_sys(const std::vector<plan::CgroupSetting>& settings)
{
    std::vector<cgroup::Setting> list;
    for (const plan::CgroupSetting& setting : settings)
        list.push_back({setting.controller, setting.file, setting.value});
    return list;
}

Result<cgroup::Host> host_cgroups()
{
    struct Known {
        ino_t mount_namespace;
        cgroup::Host host;
    };
    thread_local std::optional<Known> known;
    struct stat here{};
    if (::stat("/proc/self/ns/mnt", &here) != 0) return fail_errno("stat", "/proc/self/ns/mnt");
    if (!known || known->mount_namespace != here.st_ino)
        known = Known{here.st_ino, TRY(cgroup::detect())};
    return known->host;
}

Result<Groups> open_groups(const plan::ExecutionPlan& plan, const Binding& binding)
{
    Groups groups;
    groups.host = TRY(host_cgroups());
    groups.top.emplace(TRY_WITH(
        cgroup::CgroupTree::create(groups.host, binding.cgroup, host_resources(plan).controllers),
        "make cgroup " + binding.cgroup));
    groups.control.emplace(TRY(groups.top->make_child("control")));
    groups.workload.emplace(TRY(groups.top->make_child("workload")));
    return groups;
}

Status apply_limits(const plan::ExecutionPlan& plan, const Groups& groups)
{
    TRY_VOID(groups.top->enable_for_children(host_resources(plan).controllers));
    // v2: a child has the files of a controller only once the parent passed it on.
    TRY_VOID(groups.workload->enable_for_children(host_resources(plan).controllers));
    TRY_VOID(groups.control->set(to_sys(host_resources(plan).control)));
    return groups.workload->set(to_sys(host_resources(plan).workload));
}

Result<std::vector<std::string>> list_cgroups(const plan::ExecutionPlan& plan,
                                              const Binding& binding)
{
    const cgroup::Host host = TRY(host_cgroups());
    std::vector<std::string> mounts;
    std::vector<std::string> controllers = host_resources(plan).controllers;
    if (host_resources(plan).version == plan::CgroupVersion::v1) controllers.push_back("freezer");
    for (const std::string& controller : controllers) {
        const cgroup::Hierarchy* hierarchy = host.with(controller);
        if (hierarchy == nullptr)
            return fail(Code::unavailable, "no cgroup hierarchy has controller " + controller);
        if (std::ranges::find(mounts, hierarchy->mount) == mounts.end())
            mounts.push_back(hierarchy->mount);
    }
    std::vector<std::string> folders;
    for (const std::string& mount : mounts)
        for (const char* leaf : {"", "/control", "/workload"})
            folders.push_back(mount + binding.cgroup + leaf);
    return folders;
}

Result<Groups> make_groups(const plan::ExecutionPlan& plan, const Binding& binding)
{
    Groups groups = TRY(open_groups(plan, binding));
    // v2 lets nobody live in a cgroup that passes controllers on: limits are set by launch(), once
    // its child has left <id>.
    if (host_resources(plan).version == plan::CgroupVersion::v1)
        TRY_VOID(apply_limits(plan, groups));
    return groups;
}

Status create_cgroups(const plan::ExecutionPlan& plan, const Binding& binding)
{
    TRY(make_groups(plan, binding));
    return {};
}

namespace {

Result<SessionLeaf> make_leaf(const plan::ExecutionPlan& plan, const Binding& binding,
                              const cgroup::CgroupTree& workload, std::string_view session)
{
    // A guest makes its own: nothing of this host's is passed into it.
    if (plan->microvm) return SessionLeaf{std::string(session), {}};
    const auto leaf = TRY(workload.make_child(std::string(session)));
    SessionLeaf result{std::string(session), {}};
    // The session joins as the sandbox's root, whom a v1 hierarchy knows only by the opener's id.
    const bool as_inside = is_rootless(plan.content()) &&
                           host_resources(plan).version == plan::CgroupVersion::v1;
    cgroup::JoinHandles handles = TRY(as_inside ? leaf.join_handles_as(binding.id_base)
                                                : leaf.join_handles());
    if (host_resources(plan).version == plan::CgroupVersion::v2) {
        // PID 1 clones into the leaf as the mapped root: it must own cgroup.procs of the leaf, and
        // of <id>, the common ancestor (launch() did).
        TRY_VOID(leaf.chown_procs(binding.id_base, binding.id_base));
        result.joins.push_back(std::move(handles.dir));
        return result;
    }
    result.joins = std::move(handles.tasks);
    return result;
}

}  // namespace

Result<SessionLeaf> create_session_leaf(const plan::ExecutionPlan& plan, const Binding& binding,
                                        std::string_view session)
{
    const cgroup::Host host = TRY(host_cgroups());
    const auto workload = TRY(cgroup::CgroupTree::find(host, binding.cgroup + "/workload"));
    if (workload.empty())
        return fail(Code::not_found, "no cgroup " + binding.cgroup + "/workload: not launched");
    return make_leaf(plan, binding, workload, session);
}

Result<SessionLeaf> create_session_leaf(const plan::ExecutionPlan& plan, const Binding& binding,
                                        std::string_view session, const Groups& groups)
{
    return make_leaf(plan, binding, *groups.workload, session);
}

Status remove_session_leaf(const plan::ExecutionPlan&, const Binding& binding,
                           std::string_view session)
{
    const cgroup::Host host = TRY(host_cgroups());
    const auto leaf = TRY(
        cgroup::CgroupTree::find(host, binding.cgroup + "/workload/" + std::string(session)));
    if (leaf.empty()) return {};
    const auto deadline = sys::Deadline::after(kRemoveDeadline);
    TRY_VOID(leaf.kill_all(deadline));
    return leaf.remove(deadline);
}

Result<std::uint64_t> oom_kills(const plan::ExecutionPlan& /*plan*/, const Binding& binding)
{
    const cgroup::Host host = TRY(host_cgroups());
    const auto workload = TRY(cgroup::CgroupTree::find(host, binding.cgroup + "/workload"));
    if (workload.empty()) return std::uint64_t{0};
    // Of the sessions below too, in both hierarchies (sys/cgroup/usage.cpp).
    return workload.oom_kills();
}

Status kill_all(std::string_view path, std::chrono::milliseconds deadline)
{
    const cgroup::Host host = TRY(host_cgroups());
    const auto tree = TRY(cgroup::CgroupTree::find(host, std::string(path)));
    if (tree.empty()) return {};
    return tree.kill_all(sys::Deadline::after(deadline));
}

Status remove_cgroups(std::string_view path)
{
    const cgroup::Host host = TRY(host_cgroups());
    const auto tree = TRY(cgroup::CgroupTree::find(host, std::string(path)));
    if (!tree.empty()) TRY_VOID(tree.remove(sys::Deadline::after(kRemoveDeadline)));
    const auto slash = path.rfind('/');
    if (slash == 0 || slash == std::string_view::npos) return {};
    return cgroup::remove_if_empty(host, std::string(path.substr(0, slash)));
}

}  // namespace sandbox::driver
