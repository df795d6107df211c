// SPDX-License-Identifier: Apache-2.0
#include "driver/microvm/evidence.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/diagnostic.hpp"
#include "driver/collector.hpp"
#include "driver/evidence.hpp"
#include "driver/microvm/launch.hpp"
#include "driver/microvm/qmp.hpp"
#include "sys/caps.hpp"
#include "sys/file.hpp"

namespace sandbox::driver::microvm {

namespace {

constexpr int kFilterMode = 2;  // proc(5): Seccomp
constexpr const char* kSpaces[] = {"ipc", "mnt", "net", "pid", "user", "uts"};

// A process of ours on this host, and this one to compare it with.
struct Seen {
    sys::ProcDir proc;
    sys::ProcStatus status;
};

Result<Seen> look_at(pid_t pid)
{
    auto proc = TRY(sys::ProcDir::open(pid));
    auto status = TRY(proc.status());
    return Seen{std::move(proc), std::move(status)};
}

Result<std::string> spaces_of(const Seen& seen)
{
    const auto self = TRY(sys::ProcDir::self());
    std::string own;
    for (const char* name : kSpaces) {
        if (TRY(seen.proc.namespace_inode(name)) == TRY(self.namespace_inode(name))) continue;
        own += (own.empty() ? "" : ",") +
               std::string(std::string_view(name) == "mnt" ? "mount" : name);
    }
    return own + " own";
}

bool in_range(const Seen& seen, const Binding& binding, std::uint32_t count)
{
    const auto inside = [&](std::uint32_t id) {
        return id >= binding.id_base && id - binding.id_base < count;
    };
    return std::ranges::all_of(seen.status.uid, inside) &&
           std::ranges::all_of(seen.status.gid, inside);
}

std::string ids_of(const Seen& seen)
{
    return std::to_string(seen.status.uid[0]) + ":" + std::to_string(seen.status.gid[0]);
}

// Its root is a tmpfs of ours, and whatever lies on it is a file of ours, read-only but for devices.
Result<std::pair<std::string, bool>> root_of(const Seen& seen)
{
    const auto mounts = TRY(seen.proc.mountinfo());
    std::size_t writable = 0;
    bool tmpfs = false;
    for (const sys::MountInfo& mount : mounts) {
        if (mount.target == "/") tmpfs = mount.fstype == "tmpfs";
        if (!mount.has("ro") && !mount.target.starts_with("/dev/")) ++writable;
    }
    return std::pair(std::string(tmpfs ? "tmpfs" : "another root") + ", " +
                         std::to_string(mounts.size() - 1) + " files, " + std::to_string(writable) +
                         " writable",
                     tmpfs && writable == 0);
}

// /proc/PID/limits, "Max core file size   0   0   bytes".
Result<bool> has_no_core(const Seen& seen)
{
    const std::string limits = TRY(seen.proc.text("limits"));
    const auto at = limits.find("Max core file size");
    const auto digit = limits.find_first_of("0123456789u",
                                            at + std::string("Max core file size").size());
    return at != std::string::npos && digit != std::string::npos && limits[digit] == '0';
}

class Observer {
public:
    Observer(const plan::ExecutionPlan& plan, const Binding& binding, const Launched& launched,
             const Groups& groups)
        : plan_(plan), binding_(binding), launched_(launched), groups_(groups),
          collector_(plan.content())
    {
    }

    Result<std::vector<Evidence>> run()
    {
        TRY_VOID(vmm());
        TRY_VOID(artifacts());
        TRY_VOID(cgroups());
        TRY_VOID(servers());
        guest();
        return collector_.take();
    }

private:
    void add(std::string name, std::string observed, bool held)
    {
        const auto control = std::ranges::find(plan_->controls, name, &plan::Control::name);
        collector_.add(std::move(name), control == plan_->controls.end() ? "" : control->planned,
                       std::move(observed), held_if(held));
    }

    Status vmm()
    {
        const Seen seen = TRY(look_at(launched_.machine.pid()));
        add("vmm.user", ids_of(seen), in_range(seen, binding_, plan_->security.id_count));
        const auto& status = seen.status;
        const sys::CapSet any = status.cap_effective | status.cap_permitted |
                                status.cap_inheritable | status.cap_bounding | status.cap_ambient;
        add("vmm.capabilities", any == 0 ? "none" : std::to_string(any), any == 0);
        add("vmm.no_new_privileges", status.no_new_privs ? "1" : "0", status.no_new_privs);
        // The jail's own filter and QEMU's: it loads its own when it has parsed its options.
        const auto self = TRY(TRY(sys::ProcDir::self()).status());
        const int filters = status.seccomp_filters - self.seccomp_filters;
        add("vmm.seccomp",
            "mode " + std::to_string(status.seccomp) + ", " + std::to_string(filters) + " filters",
            status.seccomp == kFilterMode && filters >= 2);
        const std::string spaces = TRY(spaces_of(seen));
        add("vmm.namespaces", spaces, spaces == "ipc,mount,net,pid,user,uts own");
        const auto [root, sealed] = TRY(root_of(seen));
        add("vmm.root", root, sealed);
        const bool no_core = TRY(has_no_core(seen));
        add("vmm.core", no_core ? "0" : "not 0", no_core);
        const Seen keeper = TRY(look_at(launched_.init_pid));
        const bool first = !keeper.status.ns_pid.empty() && keeper.status.ns_pid.back() == 1;
        add("vmm.lifetime",
            "PID " +
                std::to_string(keeper.status.ns_pid.empty() ? 0 : keeper.status.ns_pid.back()) +
                " of its namespace",
            first);
        return devices(seen);
    }

    Status devices(const Seen& seen)
    {
        // What it holds is what it was given, and what it made itself without a way out.
        std::size_t odd = 0;
        const auto open = TRY(list_descriptors(seen.proc));
        for (const DescriptorSeen& one : open) {
            const auto known = {"pipe:",   "socket:",  "anon_inode:", "/dev/null",
                                "/memfd:", "/dev/kvm", "/kernel",     "/initrd"};
            if (std::ranges::none_of(
                    known, [&](const char* prefix) { return one.target.starts_with(prefix); }))
                ++odd;
        }
        add("vmm.devices",
            std::to_string(open.size()) + " descriptors, " + std::to_string(odd) + " unknown",
            odd == 0);
        return {};
    }

    Status artifacts()
    {
        // What runs is bound from descriptors whose bytes were hashed; a name would prove nothing.
        for (const auto& [control, artifact] :
             {std::pair("vmm.program", "vmm"), std::pair("vmm.guest_kernel", "guest.kernel"),
              std::pair("vmm.guest_initrd", "guest.initrd")}) {
            const auto found = plan_->artifacts.find(artifact);
            const bool known = found != plan_->artifacts.end();
            add(control, known ? found->second : "unknown", known);
        }
        const std::string accelerator(plan::to_string(plan_->microvm->accelerator));
        const Seen seen = TRY(look_at(launched_.machine.pid()));
        const std::string arguments = TRY(seen.proc.text("cmdline"));
        const bool same = arguments.find("-accel" + std::string(1, '\0') + accelerator) !=
                          std::string::npos;
        add("vmm.accelerator", same ? accelerator : "another", same);
        return {};
    }

    Status cgroups()
    {
        const plan::ResourcePlan& host = plan_->microvm->host;
        for (const plan::CgroupSetting& setting : host.workload) {
            const std::string observed = TRY(
                groups_.workload->read(setting.controller, setting.file));
            const std::string name = limit_of(setting);
            add(name, escaped(observed), observed == setting.value);
        }
        const Seen seen = TRY(look_at(launched_.machine.pid()));
        const auto lines = TRY(seen.proc.cgroup());
        const std::string wanted = binding_.cgroup + "/workload/machine";
        bool inside = !host.controllers.empty();
        const bool v2 = host.version == plan::CgroupVersion::v2;
        for (const std::string& controller : host.controllers)
            inside = inside && cgroup_path(lines, v2 ? "" : controller).ends_with(wanted);
        add("vmm.cgroup.own", wanted, inside);
        add("vmm.cgroup.kill", "whole tree", inside);
        return {};
    }

    // The plan's control carries the file in its mechanism: "cgroup v1 pids.max".
    std::string limit_of(const plan::CgroupSetting& setting) const
    {
        const std::string mechanism = "cgroup " +
                                      std::string(to_string(plan_->microvm->host.version)) + " " +
                                      setting.file;
        for (const plan::Control& control : plan_->controls)
            if (control.mechanism == mechanism && control.name.starts_with("vmm.limit."))
                return control.name;
        return "vmm.limit." + setting.file;
    }

    // virtiofsd serves from a child in namespaces of its own making; its parent only waits.
    static pid_t serving(pid_t parent)
    {
        const auto proc = sys::ProcDir::open(parent);
        if (!proc) return parent;
        const auto children = proc->text("task/" + std::to_string(parent) + "/children");
        const pid_t child = children ? static_cast<pid_t>(std::atoi(children->c_str())) : 0;
        return child > 0 ? child : parent;
    }

    Status servers()
    {
        bool confined = true;
        std::string observed;
        for (const sys::Pidfd& server : launched_.machine_helpers) {
            const Seen seen = TRY(look_at(serving(server.pid())));
            const bool good = seen.status.seccomp == kFilterMode &&
                              in_range(seen, binding_, plan_->security.id_count) &&
                              seen.status.no_new_privs &&
                              TRY(spaces_of(seen)) == "ipc,mount,net,pid,user,uts own";
            confined = confined && good;
            observed += (observed.empty() ? "" : "; ") + ids_of(seen) + ", seccomp " +
                        std::to_string(seen.status.seccomp);
        }
        if (!launched_.machine_helpers.empty()) add("virtiofsd.confinement", observed, confined);
        for (const plan::SharePlan& share : plan_->microvm->shares) {
            bool found = false;
            bool as_planned = false;
            for (const sys::Pidfd& server : launched_.machine_helpers)
                TRY_VOID(find_share_mount(serving(server.pid()), share, found, as_planned));
            add("share:" + share.source.str(),
                found ? std::string(share.read_only ? "ro" : "rw") + ",nosuid,nodev" : "absent",
                as_planned);
        }
        return {};
    }

    // Shares are served under their places in the plan.
    Status find_share_mount(pid_t pid, const plan::SharePlan& share, bool& found, bool& as_planned)
    {
        const auto place = &share - plan_->microvm->shares.data();
        const Seen seen = TRY(look_at(pid));
        // It has made the served tree its root by now.
        const std::string target = "/" + std::to_string(place);
        const auto mounts = TRY(seen.proc.mountinfo());
        for (const sys::MountInfo& mount : mounts) {
            if (mount.target != target) continue;
            found = true;
            as_planned = mount.has(share.read_only ? "ro" : "rw") && mount.has("nosuid") &&
                         mount.has("nodev");
        }
        return {};
    }

    void guest()
    {
        for (const auto& [name, observed] : launched_.guest_report)
            collector_.add("guest." + escaped(name), "",
                           std::string(kGuestReported) + ": " + escaped(observed), Held::yes);
    }

    const plan::ExecutionPlan& plan_;
    const Binding& binding_;
    const Launched& launched_;
    const Groups& groups_;
    Collector collector_;
};

std::string list_of(const std::vector<std::uint32_t>& numbers)
{
    std::string text;
    for (const std::uint32_t number : numbers)
        text += (text.empty() ? "" : ",") + std::to_string(number);
    return text;
}

}  // namespace

Result<std::vector<Evidence>> observe_machine(const plan::ExecutionPlan& plan,
                                              const Binding& binding, const Launched& launched,
                                              const Groups* groups)
{
    std::optional<Groups> opened;
    if (groups == nullptr) opened.emplace(TRY(open_groups(plan, binding)));
    return Observer(plan, binding, launched, groups != nullptr ? *groups : *opened).run();
}

std::vector<Evidence> report_of(const plan::ExecutionPlan& plan, const wire::Confined& report)
{
    Collector collector(plan.content());
    const auto add = [&](const char* name, const std::string& observed) {
        collector.add(std::string("guest.") + name, "",
                      std::string(kGuestReported) + ": " + observed, Held::yes);
    };
    add("process.user", std::to_string(report.uid) + ":" + std::to_string(report.gid));
    add("no_new_privileges", report.no_new_privs ? "1" : "0");
    add("seccomp.filter", "mode " + std::to_string(report.seccomp_mode) + ", " +
                              std::to_string(report.seccomp_filters) + " filters");
    if (plan->security.landlock_abi > 0)
        add("landlock", "abi " + std::to_string(report.landlock_abi));
    add("process.descriptors", list_of(report.open_fds));
    return collector.take();
}

}  // namespace sandbox::driver::microvm
