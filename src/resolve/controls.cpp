// SPDX-License-Identifier: Apache-2.0
#include "resolve/steps.hpp"

#include <algorithm>
#include <map>

#include "profile/normal.hpp"

namespace sandbox::resolve {

using plan::Control;
using plan::PlanContent;

namespace {

// One line for each control, from the finished plan: what a driver must put in force, and what
// evidence is compared with. docs/formats/plan.md lists every name with its mechanism and spelling;
// the spelling of `planned` is that of what is read back, or the comparison would fail.
class Controls {
public:
    explicit Controls(PlanContent& plan) : plan_(plan), guest_(plan.microvm ? "guest." : "") {}

    void run()
    {
        namespaces();
        filters();
        files();
        limits();
        process();
        secrets();
        lifecycle();
        if (plan_.microvm) machine(*plan_.microvm);
        // By name: the order in which steps ran must not reach the digest.
        std::sort(plan_.controls.begin(), plan_.controls.end());
    }

    // Held on this host, by what the workload cannot reach.
    void add_host(std::string name, std::string mechanism, std::string planned)
    {
        plan_.controls.push_back({std::move(name), std::move(mechanism), std::move(planned)});
    }

private:
    // Where there is a guest: held by its kernel and told by its PID 1. The name says so, and no
    // decision rests on it.
    void add(const std::string& name, std::string mechanism, std::string planned)
    {
        plan_.controls.push_back({guest_ + name, std::move(mechanism), std::move(planned)});
    }

    // With commas, as the kernel writes such lists.
    static std::string joined(const std::vector<std::string>& items)
    {
        std::string out;
        for (const std::string& item : items) out += (out.empty() ? "" : ",") + item;
        return out;
    }

    // On every mount; what differs is who may write.
    static std::string options(bool read_only)
    {
        return std::string(read_only ? "ro" : "rw") + ",nosuid,nodev";
    }

    void namespaces()
    {
        for (const std::string& kind : plan_.security.namespaces) {
            add("namespace." + kind, kind + " namespace", "own");
        }
        // Not the ids themselves: they differ from launch to launch and are a binding.
        add("id_map", "user namespace id map",
            std::to_string(plan_.security.id_count) +
                (plan_.microvm ? " ids" : " ids, host root unmapped"));
        if (plan_.network.mode == profile::NetworkMode::none) {
            add("network.none", "network namespace", "loopback only");
        }
    }

    // What the ruleset holds again that namespaces hold already. Ports are left alone: without a
    // network nothing but the sandbox's own loopback has any, and with the host's all are granted.
    std::string landlock_coverage() const
    {
        // LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET came with ABI 6; abstract sockets of the host are in
        // reach only where its network is.
        const bool scoped = plan_.network.mode == profile::NetworkMode::host &&
                            plan_.security.landlock_abi >= 6;
        return scoped ? "paths, abstract sockets" : "paths";
    }

    // In the words of what is read back from /proc/PID/status and from the mounts.
    void filters()
    {
        const plan::SecurityPlan& security = plan_.security;
        add("capabilities", "capability sets",
            security.capabilities.empty() ? "none" : joined(security.capabilities));
        // Always planned, never asked for: no profile can do without them.
        add("no_new_privileges", "no_new_privs", "1");
        add("seccomp.filter",
            "seccomp-bpf allowlist " + std::string(profile::to_string(security.seccomp)),
            security.seccomp_digest);
        // Absent where the kernel has none; resolve_landlock() has written down why.
        if (security.landlock_abi > 0) {
            add("landlock", "Landlock ruleset",
                "abi " + std::to_string(security.landlock_abi) + ": " + landlock_coverage());
        }
        add("proc.masked", "inode of our own", "hidden");
        add("proc.read_only", "read-only remount", "read-only");
    }

    void files()
    {
        // The strategy is the mechanism: how the root is made.
        add("rootfs", std::string(plan::to_string(plan_.rootfs.strategy)),
            options(plan_.rootfs.read_only));
        for (const plan::MountPlan& mount : plan_.mounts) {
            std::string mechanism = "tmpfs";
            // Which ownership a bind has decides how it is made.
            if (mount.type == profile::MountType::bind) {
                mechanism = mount.ownership == plan::Ownership::idmap_user ? "idmapped bind"
                                                                           : "bind";
            }
            add("mount:" + mount.target.str(), std::move(mechanism), options(mount.read_only));
        }
        for (const GuestPath& path : plan_.masks) {
            add("mask:" + path.str(), "inode of our own", "covered");
        }
    }

    static std::string limit_name(const plan::CgroupSetting& setting)
    {
        // Both spellings of a limit have one name: a plan of v1 and one of v2 can be compared.
        static const std::map<std::string_view, std::string_view> kNames{
            {"memory.limit_in_bytes", "memory"},
            {"memory.max", "memory"},
            {"memory.memsw.limit_in_bytes", "swap"},
            {"memory.swap.max", "swap"},
            {"memory.oom.group", "oom_group"},
            {"pids.max", "pids"},
            {"cpu.max", "cpu"},
            {"cpu.cfs_quota_us", "cpu"},
            {"cpu.cfs_period_us", "cpu_period"},
            {"cpu.weight", "cpu_weight"},
            {"cpu.shares", "cpu_weight"},
            {"cpuset.cpus", "cpuset"},
            {"io.weight", "io_weight"}};
        // at(): a setting without a name here is a mistake of ours, and no plan comes of it.
        return std::string(kNames.at(setting.file));
    }

    static std::string kill_of(const plan::ResourcePlan& resources)
    {
        return resources.version == plan::CgroupVersion::v2 ? "cgroup.kill" : "freezer and signal";
    }

    void limits()
    {
        const plan::ResourcePlan& resources = plan_.resources;
        const std::string cgroup = "cgroup " + std::string(to_string(resources.version));
        for (const plan::CgroupSetting& setting : resources.workload) {
            add("limit." + limit_name(setting), cgroup + " " + setting.file, setting.value);
        }
        // The control leaf's limits are ours, not the profile's: a prefix of its own.
        for (const plan::CgroupSetting& setting : resources.control) {
            add("limit.control." + limit_name(setting), cgroup + " " + setting.file, setting.value);
        }
        add("cgroup.own", cgroup + " workload leaf", joined(resources.controllers));
        add("cgroup.kill", kill_of(resources), "whole tree");
    }

    // The VMM and all it can reach, confined as if already lost.
    void machine(const plan::MicrovmPlan& microvm)
    {
        add_host("vmm.accelerator", "QEMU -accel", std::string(to_string(microvm.accelerator)));
        add_host("vmm.program", "digest", plan_.artifacts["vmm"]);
        add_host("vmm.guest_kernel", "digest", plan_.artifacts["guest.kernel"]);
        add_host("vmm.guest_initrd", "digest", plan_.artifacts["guest.initrd"]);
        add_host("vmm.devices", "QEMU argument list",
                 "console,random,shares,virtio-serial; no network, disk or vsock");
        add_host("vmm.user", "setresuid, setresgid, setgroups", "of the sandbox's range, not root");
        add_host("vmm.capabilities", "capability sets", "none");
        add_host("vmm.no_new_privileges", "no_new_privs", "1");
        add_host("vmm.namespaces", "namespaces", "ipc,mount,net,pid,user,uts own");
        add_host("vmm.root", "pivot_root", "programs, guest files and nothing else; read-only");
        add_host("vmm.seccomp", "QEMU -sandbox",
                 "obsolete,elevateprivileges,spawn,resourcecontrol denied");
        add_host("vmm.core", "setrlimit soft and hard", "0");
        add_host("vmm.lifetime", "PID 1 of its namespace", "ends with the shim's pipe");
        const std::string cgroup = "cgroup " + std::string(to_string(microvm.host.version));
        for (const plan::CgroupSetting& setting : microvm.host.workload) {
            add_host("vmm.limit." + limit_name(setting), cgroup + " " + setting.file,
                     setting.value);
        }
        add_host("vmm.cgroup.own", cgroup, joined(microvm.host.controllers));
        add_host("vmm.cgroup.kill", kill_of(microvm.host), "whole tree");
        for (const plan::SharePlan& share : microvm.shares) {
            add_host("share:" + share.source.str(),
                     share.read_only ? "virtiofsd over a read-only bind" : "virtiofsd over a bind",
                     options(share.read_only));
        }
        if (microvm.shares.empty()) return;
        add_host("virtiofsd.confinement", "user namespace, its own sandbox and seccomp",
                 "ids of the sandbox's range, descriptors only");
    }

    void process()
    {
        const plan::ProcessPlan& process = plan_.process;
        // Read back as effective ids; all three of each are set at once.
        add("process.user", "setresuid, setresgid, setgroups",
            std::to_string(process.uid) + ":" + std::to_string(process.gid));
        add("process.umask", "umask", profile::format_mode(process.umask));
        // A census of the child's descriptors just before exec, law 11 of the design.
        add("process.descriptors", "descriptor census", "stdio only");
        if (process.timeout) {
            add_host("process.timeout", "shim timer", format_duration(*process.timeout));
        }
        for (const auto& [limit, value] : process.rlimits) {
            add("rlimit." + limit, "setrlimit soft and hard", std::to_string(value));
        }
    }

    void secrets()
    {
        // Only names and places: a value must not reach a plan.
        for (const profile::Secret& secret : plan_.request.secrets) {
            add("secret:" + secret.name,
                secret.env ? "environment of the main process" : "file on a private tmpfs",
                secret.env ? *secret.env : secret.file->str());
        }
    }

    void lifecycle()
    {
        // Held by the shim and not by the kernel.
        const profile::Lifecycle& lifecycle = plan_.request.lifecycle;
        if (lifecycle.restart != profile::RestartPolicy::no) {
            std::string planned(profile::to_string(lifecycle.restart));
            planned += ", back-off " + format_duration(lifecycle.backoff);
            if (lifecycle.max_restarts) {
                planned += ", at most " + std::to_string(*lifecycle.max_restarts) + " in a row";
            }
            add_host("lifecycle.restart", "shim, a new generation", std::move(planned));
        }
        if (lifecycle.ttl) {
            add_host("lifecycle.ttl", "shim timer", format_duration(*lifecycle.ttl));
        }
        if (lifecycle.idle_timeout) {
            add_host("lifecycle.idle_timeout", "shim timer",
                     format_duration(*lifecycle.idle_timeout));
        }
        if (!lifecycle.health) return;
        const profile::Health& health = *lifecycle.health;
        add("lifecycle.health", "session in a leaf of its own",
            "every " + format_duration(health.interval) + ", within " +
                format_duration(health.timeout) + ", " + std::to_string(health.retries) +
                " failures in a row");
    }

    PlanContent& plan_;
    std::string guest_;  // in front of the names of what the guest reports
};

}  // namespace

void list_controls(Draft& draft)
{
    Controls controls(draft.plan);
    // The one control that no driver holds: the supervisor counts before it launches.
    if (const auto most = draft.policy().limits().max.sandboxes) {
        controls.add_host("admission.sandboxes", "supervisor count",
                          "at most " + std::to_string(*most));
    }
    controls.run();
}

}  // namespace sandbox::resolve
