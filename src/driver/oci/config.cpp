// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "canon/json.hpp"
#include "driver/oci/parts.hpp"
#include "sys/seccomp/compile.hpp"

namespace sandbox::driver::oci {
namespace {

using canon::Json;

// The specification crun 1.8.1 speaks (`crun --version`: spec: 1.0.0).
constexpr const char* kOciVersion = "1.0.0";
// --preserve-fds keeps 3 (channel), 4 (sandbox-init) and 5 (bootstrap).
constexpr const char* kInitPath = "/proc/self/fd/4";
// Nodes and links only.
constexpr const char* kDevOptions[] = {"nosuid", "noexec", "mode=755", "size=65536"};

Json mounts()
{
    Json list = Json::array();
    const auto add = [&](const char* destination, const char* type, Json options) {
        list.push_back({{"destination", destination},
                        {"type", type},
                        {"source", type},
                        {"options", std::move(options)}});
    };
    // No sysfs: nothing of ours needs it, and it describes the host.
    add("/proc", "proc", {"nosuid", "nodev", "noexec"});
    add("/dev", "tmpfs", Json(kDevOptions));
    add("/dev/pts", "devpts", {"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"});
    add("/dev/shm", "tmpfs", {"nosuid", "nodev", "noexec", "mode=1777", "size=67108864"});
    add("/dev/mqueue", "mqueue", {"nosuid", "nodev", "noexec"});
    return list;
}

Json id_map(const plan::PlanContent& plan, const Binding& binding)
{
    return Json::array(
        {{{"containerID", 0}, {"hostID", binding.id_base}, {"size", plan.security.id_count}}});
}

Json namespaces(const plan::PlanContent& plan)
{
    Json list = Json::array();
    for (const std::string& name : plan.security.namespaces) {
        // The launcher unshares it in <id>, where session leaves lie below its root.
        if (name == "cgroup") continue;
        list.push_back({{"type", name == "net" ? "network" : name}});
    }
    return list;
}

Json paths(const std::vector<GuestPath>& list)
{
    Json json = Json::array();
    for (const GuestPath& path : list) json.push_back(path.str());
    return json;
}

std::string base64(std::string_view bytes)
{
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    text.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t at = 0; at < bytes.size(); at += 3) {
        std::uint32_t group = 0;
        for (std::size_t i = 0; i < 3; ++i)
            group = group << 8 |
                    (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
        for (std::size_t i = 0; i < 4; ++i)
            text += i <= bytes.size() - at ? kDigits[group >> (18 - 6 * i) & 63U] : '=';
    }
    return text;
}

// PID 1 itself; what the user runs is a session that it starts (service_open).
Json process(const plan::PlanContent& plan)
{
    const Json caps = init_capabilities(plan);
    return {{"args", {kInitPath}},
            {"cwd", "/"},
            {"env", Json::array()},
            {"noNewPrivileges", true},
            {"terminal", false},
            {"user", {{"uid", 0}, {"gid", 0}}},
            {"capabilities",
             {{"bounding", caps},
              {"effective", caps},
              {"permitted", caps},
              {"inheritable", Json::array()},
              {"ambient", Json::array()}}}};
}

// Law 11: namespaces named here are the only ones this driver makes; a plan without one of them
// was meant for another driver.
Status check(const plan::PlanContent& plan)
{
    if (plan.driver != profile::Driver::oci)
        return fail(Code::invalid_argument, "the plan is for another driver than oci");
    std::set<std::string> wanted{"cgroup", "ipc", "mount", "pid", "user", "uts"};
    if (plan.network.mode == profile::NetworkMode::none)
        wanted.insert("net");
    else if (plan.network.mode != profile::NetworkMode::host)
        return fail(Code::invalid_argument, "the oci driver does not express network egress yet");
    const std::set<std::string> given(plan.security.namespaces.begin(),
                                      plan.security.namespaces.end());
    if (given != wanted)
        return fail(Code::invalid_argument,
                    "the plan's namespaces are not those of the oci driver for this network mode");
    return {};
}

}  // namespace

Result<std::string> compile_config(const plan::ExecutionPlan& plan, const Binding& binding)
{
    TRY_VOID(check(plan.content()));
    const auto arch = TRY(architecture(plan.content()));
    const std::string filter = bpf_bytes(sys::seccomp::compile(sys::seccomp::Profile::outer, arch));
    const Json config{
        {"ociVersion", kOciVersion},
        {"root", {{"path", "rootfs"}, {"readonly", plan->rootfs.read_only}}},
        {"hostname", plan->network.hostname},
        {"process", process(plan.content())},
        {"mounts", mounts()},
        // The only annotation, and ours: crun loads these bytes as the filter, which spares its
        // libseccomp run (0.7 to 1.1 ms). No annotation of a profile gets here.
        {"annotations", {{"run.oci.seccomp_bpf_data", base64(filter)}}},
        {"linux",
         {{"namespaces", namespaces(plan.content())},
          {"uidMappings", id_map(plan.content(), binding)},
          {"gidMappings", id_map(plan.content(), binding)},
          {"maskedPaths", paths(plan->security.masked)},
          {"readonlyPaths", paths(plan->security.read_only)}}}};
    return canon::serialize(config);
}

}  // namespace sandbox::driver::oci
