// SPDX-License-Identifier: Apache-2.0
#include "resolve/steps.hpp"

#include <algorithm>
#include <map>

#include "profile/normal.hpp"

namespace sandbox::resolve {

using plan::Control;
using plan::PlanContent;

namespace {

// docs/formats/plan.md lists every name with its mechanism and spelling.
class Controls {
public:
    explicit Controls(PlanContent& plan) : plan_(plan) {}

    void run()
    {
        namespaces();
        filters();
        files();
        limits();
        process();
        secrets();
        lifecycle();
        std::sort(plan_.controls.begin(), plan_.controls.end());
    }

    void add(std::string name, std::string mechanism, std::string planned)
    {
        plan_.controls.push_back({std::move(name), std::move(mechanism), std::move(planned)});
    }

private:
    static std::string joined(const std::vector<std::string>& items)
    {
        std::string out;
        for (const std::string& item : items) out += (out.empty() ? "" : ",") + item;
        return out;
    }

    static std::string options(bool read_only)
    {
        return std::string(read_only ? "ro" : "rw") + ",nosuid,nodev";
    }

    void namespaces()
    {
        for (const std::string& kind : plan_.security.namespaces) {
            add("namespace." + kind, kind + " namespace", "own");
        }
        add("id_map", "user namespace id map",
            std::to_string(plan_.security.id_count) + " ids, host root unmapped");
        if (plan_.network.mode == profile::NetworkMode::none) {
            add("network.none", "network namespace", "loopback only");
        }
    }

    void filters()
    {
        const plan::SecurityPlan& security = plan_.security;
        add("capabilities", "capability sets",
            security.capabilities.empty() ? "none" : joined(security.capabilities));
        add("no_new_privileges", "no_new_privs", "1");
        add("seccomp.filter",
            "seccomp-bpf allowlist " + std::string(profile::to_string(security.seccomp)),
            security.seccomp_digest);
        if (security.landlock_abi > 0) {
            add("landlock", "Landlock ruleset", "abi " + std::to_string(security.landlock_abi));
        }
        add("proc.masked", "inode of our own", "hidden");
        add("proc.read_only", "read-only remount", "read-only");
    }

    void files()
    {
        add("rootfs", std::string(plan::to_string(plan_.rootfs.strategy)),
            options(plan_.rootfs.read_only));
        for (const plan::MountPlan& mount : plan_.mounts) {
            std::string mechanism = "tmpfs";
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

    void limits()
    {
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
        const plan::ResourcePlan& resources = plan_.resources;
        const std::string cgroup = "cgroup " + std::string(to_string(resources.version));
        for (const plan::CgroupSetting& setting : resources.workload) {
            add("limit." + std::string(kNames.at(setting.file)), cgroup + " " + setting.file,
                setting.value);
        }
        for (const plan::CgroupSetting& setting : resources.control) {
            add("limit.control." + std::string(kNames.at(setting.file)),
                cgroup + " " + setting.file, setting.value);
        }
        add("cgroup.own", cgroup + " workload leaf", joined(resources.controllers));
        add("cgroup.kill",
            resources.version == plan::CgroupVersion::v2 ? "cgroup.kill" : "freezer and signal",
            "whole tree");
    }

    void process()
    {
        const plan::ProcessPlan& process = plan_.process;
        add("process.user", "setresuid, setresgid, setgroups",
            std::to_string(process.uid) + ":" + std::to_string(process.gid));
        add("process.umask", "umask", profile::format_mode(process.umask));
        add("process.descriptors", "descriptor census", "stdio only");
        if (process.timeout) {
            add("process.timeout", "shim timer", format_duration(*process.timeout));
        }
        for (const auto& [limit, value] : process.rlimits) {
            add("rlimit." + limit, "setrlimit soft and hard", std::to_string(value));
        }
    }

    void secrets()
    {
        for (const profile::Secret& secret : plan_.request.secrets) {
            add("secret:" + secret.name,
                secret.env ? "environment of the main process" : "file on a private tmpfs",
                secret.env ? *secret.env : secret.file->str());
        }
    }

    void lifecycle()
    {
        const profile::Lifecycle& lifecycle = plan_.request.lifecycle;
        if (lifecycle.restart != profile::RestartPolicy::no) {
            std::string planned(profile::to_string(lifecycle.restart));
            planned += ", back-off " + format_duration(lifecycle.backoff);
            if (lifecycle.max_restarts) {
                planned += ", at most " + std::to_string(*lifecycle.max_restarts) + " in a row";
            }
            add("lifecycle.restart", "shim, a new generation", std::move(planned));
        }
        if (lifecycle.ttl) {
            add("lifecycle.ttl", "shim timer", format_duration(*lifecycle.ttl));
        }
        if (lifecycle.idle_timeout) {
            add("lifecycle.idle_timeout", "shim timer", format_duration(*lifecycle.idle_timeout));
        }
        if (!lifecycle.health) return;
        const profile::Health& health = *lifecycle.health;
        add("lifecycle.health", "session in a leaf of its own",
            "every " + format_duration(health.interval) + ", within " +
                format_duration(health.timeout) + ", " + std::to_string(health.retries) +
                " failures in a row");
    }

    PlanContent& plan_;
};

}  // namespace

void list_controls(Draft& draft)
{
    Controls controls(draft.plan);
    if (const auto most = draft.policy().limits().max.sandboxes) {
        controls.add("admission.sandboxes", "supervisor count", "at most " + std::to_string(*most));
    }
    controls.run();
}

}  // namespace sandbox::resolve
