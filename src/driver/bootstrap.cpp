// SPDX-License-Identifier: Apache-2.0
#include "driver/bootstrap.hpp"

#include <algorithm>
#include <set>

#include "sys/caps.hpp"
#include "sys/landlock.hpp"
#include "sys/rlimit.hpp"
#include "sys/seccomp/compile.hpp"
#include "sys/seccomp/digest.hpp"
#include "wire/wire.hpp"

namespace sandbox::driver {
namespace {

namespace landlock = sys::landlock;

// Reading and executing is decided by mounts and owners; Landlock holds the writes to what the
// plan made writable, should a mount flag ever fail.
std::vector<wire::LandlockRule> landlock_rules(const plan::PlanContent& plan)
{
    const int abi = static_cast<int>(plan.security.landlock_abi);
    const std::uint64_t all = landlock::all_fs(abi);
    const std::uint64_t devices = (landlock::kReadFile | landlock::kReadDir | landlock::kWriteFile |
                                   landlock::kTruncate | landlock::kIoctlDev) &
                                  all;
    std::vector<wire::LandlockRule> rules;
    rules.push_back({"/", plan.rootfs.read_only ? landlock::kReadExecute : all});
    rules.push_back({"/dev", devices});
    rules.push_back({"/dev/shm", all});
    rules.push_back({"/tmp", all});
    if (plan.rootfs.kind == "host") {
        rules.push_back({"/run", all});
        rules.push_back({"/var/tmp", all});
    }
    for (const plan::MountPlan& mount : plan.mounts)
        if (!mount.read_only) rules.push_back({mount.target.str(), all});
    // Sorted and unique by path: the record is canonical, and a path is never granted twice.
    std::ranges::stable_sort(rules, {}, &wire::LandlockRule::path);
    const auto repeated = std::ranges::unique(rules, {}, &wire::LandlockRule::path);
    rules.erase(repeated.begin(), repeated.end());
    return rules;
}

Result<std::vector<wire::Rlimit>> rlimits(const plan::PlanContent& plan)
{
    std::vector<wire::Rlimit> list;
    for (const auto& [name, value] : plan.process.rlimits) {
        const auto number = sys::rlimit_number(name);
        if (!number) return fail(Code::invalid_argument, "no such resource limit: " + name);
        list.push_back({static_cast<std::uint8_t>(*number), value});
    }
    // A core file would be the crashed program's memory on a disk, or in the hands of a helper of
    // the host's.
    if (!plan.process.rlimits.contains("core"))
        list.push_back({static_cast<std::uint8_t>(*sys::rlimit_number("core")), 0});
    std::ranges::sort(list, {}, &wire::Rlimit::resource);
    return list;
}

wire::ByteVector bytes_of(std::string_view text)
{
    const auto* first = reinterpret_cast<const std::byte*>(text.data());
    return {first, first + text.size()};
}

sys::seccomp::Profile inner_profile(const plan::PlanContent& plan)
{
    return plan.security.seccomp == profile::SeccompProfile::strict
               ? sys::seccomp::Profile::strict
               : sys::seccomp::Profile::standard;
}

wire::Open base_open(const plan::ExecutionPlan& plan)
{
    wire::Open open;
    open.uid = plan->process.uid;
    open.gid = plan->process.gid;
    open.cwd = plan->process.cwd.str();
    open.umask = plan->process.umask;
    open.gate = true;
    return open;
}

}  // namespace

Result<sys::seccomp::Arch> architecture(const plan::PlanContent& plan)
{
    const auto fact = plan.facts.find("kernel.arch");
    if (fact != plan.facts.end()) {
        if (fact->second.value == "x86_64") return sys::seccomp::Arch::x86_64;
        if (fact->second.value == "aarch64") return sys::seccomp::Arch::aarch64;
        return fail(Code::unavailable, "no system call table for " + fact->second.value);
    }
    const auto native = sys::seccomp::native_arch();
    if (!native) return fail(Code::unavailable, "no system call table for this machine");
    return *native;
}

std::string bpf_bytes(std::span<const sock_filter> program)
{
    const auto bytes = std::as_bytes(program);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<std::map<std::string, std::string>> filter_digests(const plan::PlanContent& plan)
{
    namespace seccomp = sys::seccomp;
    const seccomp::Arch arch = TRY(architecture(plan));
    return std::map<std::string, std::string>{
        {"inner", seccomp::program_digest(seccomp::compile(inner_profile(plan), arch))},
        {"outer", seccomp::program_digest(seccomp::compile(seccomp::Profile::outer, arch))}};
}

Result<std::string> compile_bootstrap(const plan::ExecutionPlan& plan, const Binding& binding,
                                      BootWay way)
{
    wire::Bootstrap record;
    record.mode = way.mode;
    record.channel = way.channel;
    record.channel_fd = way.channel == wire::BootChannel::inherited_fd ? way.channel_fd : 0;
    record.sandbox_id = binding.id.str();
    // An exec session is not a way to become somebody else: the plan's user and no other.
    record.permitted_ids = {{plan->process.uid, plan->process.gid}};
    record.capabilities = TRY(sys::cap_set(plan->security.capabilities));
    if (plan->security.landlock_abi > 0) {
        const int abi = static_cast<int>(plan->security.landlock_abi);
        record.landlock_abi = plan->security.landlock_abi;
        record.landlock_handled_fs = landlock::all_fs(abi);
        // The host's abstract sockets are in reach only where the host's network is.
        if (plan->network.mode == profile::NetworkMode::host)
            record.landlock_scoped = landlock::all_scopes(abi) & landlock::kScopeAbstractUnix;
        record.landlock = landlock_rules(plan.content());
    }
    record.bpf = bytes_of(bpf_bytes(
        sys::seccomp::compile(inner_profile(plan.content()), TRY(architecture(plan.content())))));
    for (const auto& [name, value] : plan->process.env) record.env.emplace_back(name, value);
    record.rlimits = TRY(rlimits(plan.content()));
    record.stop_grace_ms = static_cast<std::uint32_t>(plan->request.lifecycle.stop_timeout.count());
    const auto bytes = TRY_WITH(wire::encode(record), "encode the bootstrap record");
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Service service_of(const plan::PlanContent& plan)
{
    Service service;
    service.workload = plan.resources.workload;
    service.control = plan.resources.control;
    service.controllers = plan.resources.controllers;
    service.cgroup_version = plan.resources.version;
    service.timeout = plan.process.timeout;
    if (!plan.process.idle) service.argv = plan.process.argv;
    service.cwd = plan.process.cwd;
    service.umask = plan.process.umask;
    service.terminal = plan.process.terminal;
    return service;
}

std::vector<std::string> init_capabilities(const plan::PlanContent& plan)
{
    std::set<std::string> caps{"CAP_KILL", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID"};
    caps.insert(plan.security.capabilities.begin(), plan.security.capabilities.end());
    return {caps.begin(), caps.end()};
}

wire::Open service_open(const plan::ExecutionPlan& plan)
{
    wire::Open open = base_open(plan);
    open.kind = wire::SessionKind::service;
    open.argv = plan->process.argv;
    open.stdio = wire::SessionStdio::descriptors;
    if (plan->process.timeout)
        open.timeout_ms = static_cast<std::uint32_t>(plan->process.timeout->count());
    return open;
}

wire::Open exec_open(const plan::ExecutionPlan& plan, std::vector<std::string> argv)
{
    wire::Open open = base_open(plan);
    open.kind = wire::SessionKind::exec;
    open.argv = std::move(argv);
    return open;
}

}  // namespace sandbox::driver
