// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "facts/facts.hpp"
#include "policy/policy.hpp"
#include "resolve/resolve.hpp"

// One request, its policy and its host, good until a test spoils something.
namespace sandbox::resolve::test {

using FactMap = std::map<std::string, facts::Fact>;

inline std::string digest_of(char digit) { return "sha256:" + std::string(64, digit); }

inline FactMap host(std::string_view version)
{
    using facts::FactStatus;
    FactMap out;
    const auto ok = [&](std::string_view name, std::string value) {
        out[std::string(name)] = {FactStatus::ok, std::move(value), "tried"};
    };
    const auto note = [&](std::string_view name, std::string value) {
        out[std::string(name)] = {FactStatus::note, std::move(value), "read"};
    };
    const auto gap = [&](std::string_view name, std::string evidence) {
        out[std::string(name)] = {FactStatus::gap, "", std::move(evidence)};
    };
    for (const char* kind : {"user", "mount", "pid", "ipc", "uts", "net", "cgroup"}) {
        ok(std::string("namespace.") + kind, "yes");
    }
    for (const char* kind : {"memory", "pids", "cpu", "cpuset", "freezer", "swap"}) {
        ok(std::string("cgroup.") + kind, std::string(version));
    }
    const bool v2 = version == "v2";
    ok("cgroup.hierarchy", v2 ? "v2" : "hybrid");
    ok("cgroup.kill", v2 ? "cgroup.kill" : "freezer");
    ok("cgroup.parent", "/sandbox");
    if (v2) ok("cgroup.io", "v2");
    for (const char* name : {"seccomp.filter", "process.no_new_privs", "process.pidfd",
                             "memfd.sealed_exec", "mount.overlayfs", "mount.idmapped",
                             "mount.recursive_readonly", "oci.runtime.preserve_fds"}) {
        ok(name, "yes");
    }
    ok("seccomp.rules.default", digest_of('1'));
    ok("seccomp.rules.strict", digest_of('2'));
    ok("landlock.abi", "7");
    ok("host.privilege", "root");
    ok("oci.runtime.path", "/usr/bin/crun");
    ok("oci.runtime.version", "1.8.1");
    ok("oci.runtime.digest", digest_of('3'));
    ok("oci.runtime.pinned", "config");
    ok("oci.runtime.hybrid_cover", v2 ? "plain" : "covered");
    ok("init.digest", digest_of('4'));
    ok("shim.digest", digest_of('5'));
    ok("driver.oci", "1.8.1");
    ok("driver.native", "yes");
    ok("config.default_driver", "oci");
    note("kernel.arch", "x86_64");
    note("kernel.release", "6.1.0");
    note("host.cpuset", "0-3");
    note("rlimit.nofile.hard", "20000");
    gap("kvm.guest", "the guest took no interrupt");
    gap("driver.microvm", "not built in this release");
    return out;
}

struct World {
    profile::Profile profile;
    profile::Locations where;
    std::vector<policy::LocatedBundle> bundles;
    std::vector<policy::BrokenBundle> broken;
    FactMap facts = host("v1");

    Resolution resolve() const
    {
        return resolve::resolve({profile, where}, policy::EffectivePolicy::meet(bundles, broken),
                                facts::CapabilitySnapshot(facts));
    }
    void lose(std::string_view fact)
    {
        facts[std::string(fact)] = {facts::FactStatus::gap, "", "taken away"};
    }
    policy::Bundle& bundle(std::string_view key)
    {
        policy::LocatedBundle located;
        located.bundle.name = "org";
        located.where[std::string(key)] = {"org.d/10-org.toml", 4, 1};
        bundles.push_back(std::move(located));
        return bundles.back().bundle;
    }
};

// /bin/true with isolation = "sandbox" and nothing else.
inline World hello()
{
    World world;
    world.profile.name = "hello";
    world.profile.isolation = profile::Isolation::sandbox;
    world.profile.process.argv = {"/bin/true"};
    for (const char* key : {"name", "isolation", "process.argv"}) {
        world.where[key] = {"hello.toml", 2, 1};
    }
    return world;
}

// hello on a host that executes guests by "kvm" or "tcg".
inline World guest(std::string accelerator)
{
    World world = hello();
    world.profile.isolation = profile::Isolation::microvm;
    const auto put = [&](std::string name, facts::FactStatus status, std::string value) {
        world.facts[std::move(name)] = {status, std::move(value), "tried"};
    };
    using facts::FactStatus;
    if (accelerator == "kvm") put("kvm.guest", FactStatus::ok, "yes");
    put("vmm.accelerator", FactStatus::ok, std::move(accelerator));
    put("driver.microvm", FactStatus::ok, "yes");
    put("vmm.path", FactStatus::ok, "/usr/bin/qemu-system-x86_64");
    put("vmm.version", FactStatus::ok, "7.2.22");
    put("vmm.digest", FactStatus::ok, digest_of('6'));
    put("vmm.virtiofsd", FactStatus::ok, "/usr/lib/qemu/virtiofsd");
    put("vmm.virtiofsd_digest", FactStatus::ok, digest_of('7'));
    put("vmm.guest_kernel", FactStatus::ok, digest_of('8'));
    put("vmm.guest_initrd", FactStatus::ok, digest_of('9'));
    put("vmm.pinned", FactStatus::ok, "config");
    put("vmm.guest_release", FactStatus::note, "6.12.117+deb12-cloud-amd64");
    put("host.cpus", FactStatus::note, "8");
    put("host.memory", FactStatus::note, "8589934592");
    for (const char* name : {"cpus", "memory", "stores", "shares"}) {
        put(std::string("config.microvm_") + name, FactStatus::note, "");
    }
    return world;
}

inline profile::Mount bind(std::string source, std::string target)
{
    profile::Mount mount;
    mount.source = std::move(source);
    mount.target = GuestPath(std::move(target));
    return mount;
}

// A profile that uses every key this release enforces.
inline World full()
{
    World world = hello();
    profile::Profile& profile = world.profile;
    profile.name = "full";
    profile.labels = {{"team", "ml"}};
    profile.driver = profile::Driver::oci;
    profile.process.argv = {"/usr/bin/python3", "-I", "main.py"};
    profile.process.env = {{"LANG", "C.UTF-8"}};
    profile.process.cwd = GuestPath("/work");
    profile.process.timeout = Millis{30'000};
    profile.process.rlimits = {{"nofile", 1024}};
    profile.mounts = {bind("/srv/data/cache", "/work/cache"), bind("/srv/data", "/work")};
    profile.mounts[0].read_only = false;
    profile::Mount scratch;
    scratch.type = profile::MountType::tmpfs;
    scratch.target = GuestPath("/scratch");
    scratch.read_only = false;
    scratch.size = Bytes{64ULL << 20};
    profile.mounts.push_back(scratch);
    profile.masks = {{GuestPath("/work/.env")}};
    profile.resources.memory = Bytes{512ULL << 20};
    profile.resources.swap = Bytes{0};
    profile.resources.cpus = MilliCpus{1500};
    profile.resources.cpu_weight = 200;
    profile.resources.cpuset = "0-1";
    profile.resources.pids = 128;
    profile.security.capabilities = {"CAP_NET_BIND_SERVICE"};
    return world;
}

inline bool is_plan(const Resolution& resolution)
{
    return std::holds_alternative<plan::ExecutionPlan>(resolution);
}

// "CLASS reason key", one for each denial; "planned" when there is none.
inline std::vector<std::string> verdict(const Resolution& resolution)
{
    if (is_plan(resolution)) return {"planned"};
    std::vector<std::string> out;
    for (const Denial& denial : std::get<std::vector<Denial>>(resolution)) {
        out.push_back(std::string(to_string(denial.denial_class)) + " " + denial.reason + " " +
                      denial.key);
    }
    return out;
}

inline std::vector<std::string> verdict(const World& world) { return verdict(world.resolve()); }

// Requires: the world is permitted.
inline plan::ExecutionPlan planned(const World& world)
{
    return std::get<plan::ExecutionPlan>(world.resolve());
}

// Requires: the resolution is a refusal.
inline const Denial& first_of(const Resolution& resolution)
{
    return std::get<std::vector<Denial>>(resolution).front();
}

inline std::string control(const plan::ExecutionPlan& plan, std::string_view name)
{
    for (const plan::Control& control : plan->controls) {
        if (control.name == name) return control.mechanism + " = " + control.planned;
    }
    return "(no such control)";
}

}  // namespace sandbox::resolve::test
