// SPDX-License-Identifier: Apache-2.0
#include "fixture.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "canon/canon.hpp"
#include "wire/wire.hpp"

namespace sandbox::driver::test {

plan::PlanContent plain_content(profile::Driver driver)
{
    plan::PlanContent content;
    content.driver = driver;
    content.request.name = "sample";
    content.request.isolation = profile::Isolation::sandbox;
    content.request.process.argv = {"/bin/true"};
    content.request.lifecycle.stop_timeout = Millis(0);
    content.process.argv = {"/bin/true"};
    content.process.env = {{"HOME", "/"}, {"PATH", "/usr/bin:/bin"}};
    content.process.cwd = GuestPath("/");
    content.process.uid = 1000;
    content.process.gid = 1000;
    content.process.umask = 0022;
    content.rootfs.kind = "host";
    content.rootfs.source = HostPath("/usr");
    content.rootfs.etc = {{"hostname", "sample\n"},
                          {"passwd", "root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n"}};
    content.network.hostname = "sample";
    content.resources.version = plan::CgroupVersion::v1;
    content.resources.controllers = {"memory", "pids"};
    content.resources.workload = {{"memory", "memory.limit_in_bytes", "67108864"},
                                  {"pids", "pids.max", "64"}};
    content.resources.control = {{"memory", "memory.limit_in_bytes", "33554432"},
                                 {"pids", "pids.max", "32"}};
    content.security.namespaces = {"cgroup", "ipc", "mount", "net", "pid", "user", "uts"};
    content.security.landlock_abi = 4;
    content.security.masked = {GuestPath("/proc/keys"), GuestPath("/proc/timer_list")};
    content.security.read_only = {GuestPath("/proc/sys")};
    content.facts = {{"kernel.arch", {"note", "x86_64"}}};
    return content;
}

plan::PlanContent full_content(profile::Driver driver)
{
    plan::PlanContent content = plain_content(driver);
    content.process.argv = {"/usr/bin/python3", "-I", "main.py"};
    content.process.cwd = GuestPath("/work");
    content.process.umask = 0027;
    content.process.timeout = Millis(30'000);
    content.process.rlimits = {{"nofile", 1024}};
    content.mounts = {
        {profile::MountType::bind, HostPath("/srv/data"), GuestPath("/work"), false,
         plan::Ownership::idmap_user, std::nullopt, 0},
        {profile::MountType::bind, HostPath("/srv/read"), GuestPath("/work/read"), true,
         plan::Ownership::overflow, std::nullopt, 0},
        {profile::MountType::tmpfs, HostPath(), GuestPath("/scratch"), false,
         plan::Ownership::overflow, Bytes{1U << 20}, 0700},
    };
    content.masks = {GuestPath("/work/a/b/.env"), GuestPath("/work/read/key"),
                     GuestPath("/etc/shadow")};
    content.security.capabilities = {"CAP_NET_BIND_SERVICE"};
    return content;
}

plan::ExecutionPlan sealed(plan::PlanContent content)
{
    auto plan = plan::ExecutionPlan::seal(std::move(content));
    if (!plan) ADD_FAILURE() << plan.error().message();
    return std::move(plan).value();
}

Binding sample_binding()
{
    Binding binding;
    binding.id = SandboxId("0123456789abcdef0123456789abcdef");
    binding.name = SandboxName("sample");
    binding.id_base = 0x20000000;
    binding.run_dir = HostPath("/run/sandbox/0123456789abcdef0123456789abcdef");
    binding.state_dir = HostPath("/var/lib/sandbox/sandboxes/0123456789abcdef0123456789abcdef");
    binding.cgroup = "/sandbox/0123456789abcdef0123456789abcdef";
    return binding;
}

std::vector<Mutation> mutations()
{
    using Content = plan::PlanContent;
    return {
        {"process.argv", [](Content& c) { c.process.argv.push_back("more"); }},
        {"process.idle",
         [](Content& c) {
             c.process.idle = true;
             c.process.argv.clear();
         }},
        {"process.env", [](Content& c) { c.process.env["NEW"] = "1"; }},
        {"process.cwd", [](Content& c) { c.process.cwd = GuestPath("/tmp"); }},
        {"process.uid", [](Content& c) { c.process.uid = 1001; }},
        {"process.gid", [](Content& c) { c.process.gid = 1001; }},
        {"process.umask", [](Content& c) { c.process.umask = 0077; }},
        {"process.terminal", [](Content& c) { c.process.terminal = true; }},
        {"process.timeout", [](Content& c) { c.process.timeout = Millis(1); }},
        {"process.rlimits", [](Content& c) { c.process.rlimits["nofile"] = 64; }},
        {"rootfs.kind",
         [](Content& c) {
             c.rootfs.kind = "dir";
             c.rootfs.strategy = plan::RootfsStrategy::overlay_tmpfs;
         }},
        {"rootfs.source", [](Content& c) { c.rootfs.source = HostPath("/opt/usr"); }},
        {"rootfs.read_only", [](Content& c) { c.rootfs.read_only = false; }},
        {"rootfs.ownership", [](Content& c) { c.rootfs.ownership = plan::Ownership::idmap_all; }},
        {"rootfs.etc", [](Content& c) { c.rootfs.etc["hosts"] = "x"; }},
        {"mount.type", [](Content& c) { c.mounts[1].type = profile::MountType::tmpfs; }},
        {"mount.source", [](Content& c) { c.mounts[0].source = HostPath("/srv/other"); }},
        {"mount.target", [](Content& c) { c.mounts[2].target = GuestPath("/other"); }},
        {"mount.read_only", [](Content& c) { c.mounts[0].read_only = true; }},
        {"mount.ownership", [](Content& c) { c.mounts[0].ownership = plan::Ownership::overflow; }},
        {"mount.size", [](Content& c) { c.mounts[2].size = Bytes{2U << 20}; }},
        {"mount.mode", [](Content& c) { c.mounts[2].mode = 0755; }},
        {"masks", [](Content& c) { c.masks.pop_back(); }},
        {"network.mode",
         [](Content& c) {
             c.network.mode = profile::NetworkMode::host;
             std::erase(c.security.namespaces, "net");
         }},
        {"network.hostname", [](Content& c) { c.network.hostname = "other"; }},
        {"resources.controllers", [](Content& c) { c.resources.controllers.push_back("cpu"); }},
        {"resources.workload", [](Content& c) { c.resources.workload[0].value = "1"; }},
        {"resources.control", [](Content& c) { c.resources.control[0].value = "1"; }},
        {"resources.version", [](Content& c) { c.resources.version = plan::CgroupVersion::v2; }},
        {"security.capabilities", [](Content& c) { c.security.capabilities.clear(); }},
        {"security.seccomp",
         [](Content& c) { c.security.seccomp = profile::SeccompProfile::strict; }},
        {"security.landlock_abi", [](Content& c) { c.security.landlock_abi = 3; }},
        {"security.id_count", [](Content& c) { c.security.id_count = 2000; }},
        {"security.masked", [](Content& c) { c.security.masked.pop_back(); }},
        {"security.read_only", [](Content& c) { c.security.read_only.pop_back(); }},
        {"lifecycle.stop_timeout",
         [](Content& c) { c.request.lifecycle.stop_timeout = Millis(77); }},
    };
}

void expect_golden(const std::string& name, const std::string& text)
{
    const std::string path = std::string(GOLDEN_DIR) + "/" + name + ".json";
    if (std::getenv("SANDBOX_ACCEPT") != nullptr) {
        std::ofstream(path) << text;
        GTEST_SKIP() << "accepted " << path;
    }
    std::stringstream golden;
    golden << std::ifstream(path).rdbuf();
    EXPECT_EQ(golden.str(), text) << path << "; SANDBOX_ACCEPT=1 accepts";
}

std::string without_filter(const std::string& bootstrap)
{
    auto record = wire::decode_bootstrap(std::as_bytes(std::span(bootstrap)));
    if (!record) return record.error().what;
    record->bpf.clear();
    const auto bytes = wire::encode(*record).value();
    return canon::hex({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
}

}  // namespace sandbox::driver::test
