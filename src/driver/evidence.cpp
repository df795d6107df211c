// SPDX-License-Identifier: Apache-2.0
#include "driver/evidence.hpp"

#include <fcntl.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/diagnostic.hpp"
#include "driver/bootstrap.hpp"
#include "driver/collector.hpp"
#include "driver/groups.hpp"
#include "sys/caps.hpp"
#include "sys/file.hpp"

namespace sandbox::driver {
namespace {

// What the kernel calls the namespaces that plans name in full.
std::string proc_name(const std::string& kind) { return kind == "mount" ? "mnt" : kind; }

Status observe_namespaces(const plan::PlanContent& plan, const sys::ProcDir& init,
                          Collector& collector)
{
    const sys::ProcDir self = TRY(sys::ProcDir::self());
    for (const std::string& kind : plan.security.namespaces) {
        const std::uint64_t theirs = TRY(init.namespace_inode(proc_name(kind)));
        const std::uint64_t ours = TRY(self.namespace_inode(proc_name(kind)));
        collector.add("namespace." + kind, "own", proc_name(kind) + ":" + std::to_string(theirs),
                      held_if(theirs != ours));
    }
    return {};
}

Status observe_id_map(const plan::PlanContent& plan, const Binding& binding,
                      const sys::ProcDir& init, Collector& collector)
{
    const auto uids = TRY(init.uid_map());
    const auto gids = TRY(init.gid_map());
    const std::vector<sys::IdMapping> wanted{{0, binding.id_base, plan.security.id_count}};
    std::string observed = sys::format_id_map(uids);
    if (gids != uids) observed += " gids " + sys::format_id_map(gids);
    while (!observed.empty() && observed.back() == '\n') observed.pop_back();
    collector.add("id_map", std::to_string(plan.security.id_count) + " ids", observed,
                  held_if(uids == wanted && gids == wanted && binding.id_base != 0));
    return {};
}

// Interface names are the first column of /proc/PID/net/dev, after two lines of heading.
std::set<std::string> interfaces(std::string_view text)
{
    std::set<std::string> names;
    for (int line = 0; !text.empty(); ++line) {
        const auto end = std::min(text.find('\n'), text.size());
        std::string_view row = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line < 2) continue;
        row.remove_prefix(std::min(row.find_first_not_of(' '), row.size()));
        names.insert(std::string(row.substr(0, row.find(':'))));
    }
    return names;
}

Status observe_network(const plan::PlanContent& plan, const sys::ProcDir& init,
                       Collector& collector)
{
    if (plan.network.mode != profile::NetworkMode::none) return {};
    const auto names = interfaces(TRY(init.text("net/dev")));
    std::string observed;
    for (const std::string& name : names) observed += (observed.empty() ? "" : ",") + name;
    collector.add("network.none", "loopback only", escaped(observed),
                  held_if(names == std::set<std::string>{"lo"}));
    return {};
}

std::string names_of(sys::CapSet set)
{
    std::string text;
    for (const std::string& name : sys::cap_names(set)) text += (text.empty() ? "" : ",") + name;
    return text.empty() ? "none" : text;
}

// PID 1 and its outer ring; the inner one is a session's.
Status observe_init(const plan::PlanContent& plan, const Binding& binding, const sys::ProcDir& init,
                    Collector& collector)
{
    const sys::ProcStatus status = TRY(init.status());
    const sys::ProcDir own = TRY(sys::ProcDir::self());
    const sys::ProcStatus self = TRY(own.status());
    const auto wanted = TRY(sys::cap_set(init_capabilities(plan)));
    const bool sets = status.cap_bounding == wanted && status.cap_permitted == wanted &&
                      status.cap_effective == wanted && status.cap_inheritable == 0 &&
                      status.cap_ambient == 0;
    collector.add("init.capabilities", names_of(wanted), names_of(status.cap_bounding),
                  held_if(sets));
    const bool filtered = status.seccomp == 2 && status.seccomp_filters > self.seccomp_filters;
    collector.add("init.seccomp", "outer filter",
                  "mode " + std::to_string(status.seccomp) + ", " +
                      std::to_string(status.seccomp_filters) + " filters",
                  held_if(filtered && status.no_new_privs));
    const bool mapped = std::ranges::all_of(
        status.uid, [&](std::uint32_t id) { return id == binding.id_base; });
    collector.add("init.user", std::to_string(binding.id_base), std::to_string(status.uid[1]),
                  held_if(mapped && status.ns_pid.size() >= 2 && status.ns_pid.back() == 1));
    return {};
}

// crun was told to leave cgroups alone and ignores limits silently: only what the files say counts.
Status observe_cgroups(const plan::ExecutionPlan& plan, const Binding& binding,
                       const sys::ProcDir& init, const Groups& groups, Collector& collector)
{
    const auto lines = TRY(init.cgroup());
    const bool v1 = plan->resources.version == plan::CgroupVersion::v1;
    std::string seen;
    bool inside = true;
    for (const std::string& controller : plan->resources.controllers) {
        const std::string path = cgroup_path(lines, v1 ? controller : "");
        inside = inside && path == binding.cgroup + "/control";
        seen += (seen.empty() ? "" : ",") + controller;
        if (path != binding.cgroup + "/control") seen += " in " + escaped(path);
    }
    collector.add("cgroup.own", binding.cgroup, seen, held_if(inside));
    const auto limits = [&](const sys::cgroup::CgroupTree& tree, const std::string& prefix,
                            const std::vector<plan::CgroupSetting>& settings) -> Status {
        for (const plan::CgroupSetting& setting : settings) {
            const std::string value = TRY(tree.read(setting.controller, setting.file));
            collector.add(limit_name(plan.content(), prefix, setting), setting.value,
                          escaped(value), held_if(value == setting.value));
        }
        return {};
    };
    TRY_VOID(limits(*groups.workload, "limit.", plan->resources.workload));
    TRY_VOID(limits(*groups.control, "limit.control.", plan->resources.control));
    const std::string killer = v1 ? "freezer.state" : "cgroup.kill";
    const auto folders = groups.top->folders();
    const bool kills = std::ranges::any_of(folders, [&](const std::string& folder) {
        return sys::open_file(folder + "/" + killer, O_PATH).has_value();
    });
    collector.add("cgroup.kill", "whole tree", kills ? killer + " there" : "absent",
                  held_if(kills));
    return {};
}

// A directory among PID 1's descriptors would be a door to the host (/proc/1/fd/N).
Status observe_init_descriptors(const sys::ProcDir& init, Collector& collector)
{
    std::string odd;
    const auto seen = TRY(list_descriptors(init));
    for (const DescriptorSeen& fd : seen) {
        const bool known = fd.target.starts_with("socket:") || fd.target.starts_with("pipe:") ||
                           fd.target.starts_with("anon_inode:") || fd.target == "/dev/null";
        if (!known) odd += (odd.empty() ? "" : ",") + std::to_string(fd.number);
    }
    collector.add("init.descriptors", "no file, no folder",
                  odd.empty() ? std::to_string(seen.size()) + " harmless" : "odd: " + odd,
                  held_if(odd.empty()));
    return {};
}

// Controls that only a session has, as observe_session names them.
bool is_of_session(std::string_view control)
{
    return control == "capabilities" || control == "no_new_privileges" || control == "landlock" ||
           control == "seccomp.filter" || control.starts_with("process.") ||
           control.starts_with("rlimit.");
}

}  // namespace

void Collector::add(std::string name, std::string planned, std::string observed, Held held)
{
    Evidence evidence{
        std::move(name), {}, std::move(planned), std::move(observed), held == Held::yes};
    const auto control = std::ranges::find(plan_.controls, evidence.name, &plan::Control::name);
    if (control != plan_.controls.end()) {
        evidence.mechanism = control->mechanism;
        evidence.planned = control->planned;
    }
    list_.push_back(std::move(evidence));
}

std::string limit_name(const plan::PlanContent& plan, const std::string& prefix,
                       const plan::CgroupSetting& setting)
{
    // The plan's control carries the file in its mechanism: "cgroup v1 pids.max".
    const std::string mechanism = "cgroup " + std::string(to_string(plan.resources.version)) + " " +
                                  setting.file;
    const bool control_leaf = prefix == "limit.control.";
    for (const plan::Control& control : plan.controls)
        if (control.mechanism == mechanism && control.name.starts_with(prefix) &&
            control.name.starts_with("limit.control.") == control_leaf)
            return control.name;
    return prefix + setting.file;
}

Result<std::vector<DescriptorSeen>> list_descriptors(const sys::ProcDir& process)
{
    const sys::UniqueFd folder = TRY(sys::open_at(process.fd(), "fd", O_RDONLY | O_DIRECTORY));
    std::vector<DescriptorSeen> list;
    for (const std::string& name : TRY(sys::list_dir(folder.get()))) {
        DescriptorSeen seen;
        seen.number = std::atoi(name.c_str());  // a name of /proc/PID/fd is a number
        seen.target = TRY(sys::readlink_at(folder.get(), name));
        const std::string info = TRY(process.text("fdinfo/" + name));
        const auto flags = info.find("flags:");
        if (flags != std::string::npos)
            seen.close_on_exec = (std::strtol(info.c_str() + flags + 6, nullptr, 8) & O_CLOEXEC) !=
                                 0;
        list.push_back(std::move(seen));
    }
    std::ranges::sort(list, {}, &DescriptorSeen::number);
    return list;
}

std::string cgroup_path(const std::vector<sys::CgroupLine>& lines, std::string_view controller)
{
    for (const sys::CgroupLine& line : lines) {
        const bool found = controller.empty() ? line.hierarchy == 0
                                              : std::ranges::find(line.controllers, controller) !=
                                                    line.controllers.end();
        if (found) return line.path;
    }
    return {};
}

Result<std::vector<Evidence>> observe_sandbox(const plan::ExecutionPlan& plan,
                                              const Binding& binding, const Launched& launched,
                                              const Groups* groups)
{
    Collector collector(plan.content());
    const sys::ProcDir init = TRY_WITH(sys::ProcDir::open(launched.init_pid),
                                       "read PID 1 from outside");
    TRY_VOID(observe_namespaces(plan.content(), init, collector));
    TRY_VOID(observe_id_map(plan.content(), binding, init, collector));
    TRY_VOID(observe_network(plan.content(), init, collector));
    TRY_VOID(observe_init(plan.content(), binding, init, collector));
    std::optional<Groups> opened;
    if (groups == nullptr) opened.emplace(TRY(open_groups(plan, binding)));
    TRY_VOID(
        observe_cgroups(plan, binding, init, groups != nullptr ? *groups : *opened, collector));
    TRY_VOID(observe_mounts(plan, binding, init, collector));
    TRY_VOID(observe_init_descriptors(init, collector));
    // All of the above was of this process, not of one that took its number.
    if (TRY(launched.init.ended())) return fail(Code::unavailable, "PID 1 ended while it was read");
    return collector.take();
}

Status verify(const plan::ExecutionPlan& plan, const std::vector<Evidence>& evidence)
{
    std::string missing;
    const auto note = [&missing](const std::string& name, const std::string& why) {
        missing += (missing.empty() ? "" : "; ") + name + ": " + why;
    };
    for (const Evidence& one : evidence)
        if (!one.held) note(one.name, "planned " + one.planned + ", observed " + one.observed);
    for (const plan::Control& control : plan->controls) {
        // Held by the supervisor (a count) and the shim (timers, checks), not by the kernel.
        if (control.name.starts_with("admission.") || control.name.starts_with("lifecycle.") ||
            control.name == "process.timeout") {
            continue;
        }
        // Told by the guest's own PID 1, if at all: no decision rests on it.
        if (control.name.starts_with("guest.")) continue;
        // Nothing of a workload runs in an idle sandbox: each session is witnessed when it comes.
        if (plan->process.idle && is_of_session(control.name)) continue;
        if (std::ranges::find(evidence, control.name, &Evidence::name) == evidence.end())
            note(control.name, "not witnessed");
    }
    if (missing.empty()) return {};
    return fail(Code::conflict, "controls that do not hold: " + missing);
}

}  // namespace sandbox::driver
