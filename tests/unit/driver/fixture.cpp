// SPDX-License-Identifier: Apache-2.0
#include "fixture.hpp"

#include <gtest/gtest.h>

namespace sandbox::driver::test {

plan::PlanContent plain_content()
{
    plan::PlanContent content;
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

plan::PlanContent full_content()
{
    plan::PlanContent content = plain_content();
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

}  // namespace sandbox::driver::test
