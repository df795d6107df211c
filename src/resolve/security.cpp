// SPDX-License-Identifier: Apache-2.0
#include "resolve/microvm.hpp"
#include "resolve/steps.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace sandbox::resolve {

namespace name = facts::name;

namespace {

struct Namespace {
    std::string_view kind;
    std::string_view fact;
};

// Sorted by kind, as the plan lists them.
constexpr std::array<Namespace, 7> kNamespaces{{{"cgroup", name::kCgroupNamespace},
                                                {"ipc", name::kIpcNamespace},
                                                {"mount", name::kMountNamespace},
                                                {"net", name::kNetNamespace},
                                                {"pid", name::kPidNamespace},
                                                {"user", name::kUserNamespace},
                                                {"uts", name::kUtsNamespace}}};

// What a workload may be given inside its own user namespace. All others reach the kernel's wider
// surface (NET_ADMIN, SYS_ADMIN, BPF, PERFMON, SYS_PTRACE, …) or make set-id files (FSETID).
constexpr std::array<std::string_view, 7> kGrantable{
    "CAP_CHOWN",  "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_KILL", "CAP_NET_BIND_SERVICE",
    "CAP_SETGID", "CAP_SETUID"};

// maskedPaths and readonlyPaths of the OCI runtimes' common default (containers/common,
// moby oci/defaults.go).
constexpr std::array<std::string_view, 12> kMasked{"/proc/acpi",
                                                   "/proc/asound",
                                                   "/proc/interrupts",
                                                   "/proc/kcore",
                                                   "/proc/keys",
                                                   "/proc/latency_stats",
                                                   "/proc/sched_debug",
                                                   "/proc/scsi",
                                                   "/proc/timer_list",
                                                   "/proc/timer_stats",
                                                   "/sys/devices/virtual/powercap",
                                                   "/sys/firmware"};
constexpr std::array<std::string_view, 5> kReadOnly{"/proc/bus", "/proc/fs", "/proc/irq",
                                                    "/proc/sys", "/proc/sysrq-trigger"};

// The newest ABI whose rights we know by name; a newer kernel is asked for this one. ABI 7 is Linux
// 6.15 (landlock(7)).
constexpr std::uint32_t kNewestLandlock = 7;

void resolve_namespaces(Draft& draft)
{
    // Without a network of its own a sandbox reaches abstract sockets and every loopback service.
    const bool own_network = draft.profile().network.mode != profile::NetworkMode::host;
    for (const Namespace& space : kNamespaces) {
        if (space.kind == "net" && !own_network) continue;
        const std::string reason = std::string(space.kind) + "-namespace-unavailable";
        // Recorded in the plan even where it is missing: the denial then names the fact.
        draft.require(space.fact, reason, space.kind == "net" ? "network.mode" : "isolation",
                      "the sandbox has a " + std::string(space.kind) + " namespace of its own");
        draft.plan.security.namespaces.emplace_back(space.kind);
    }
}

void resolve_capabilities(Draft& draft)
{
    const auto& asked = draft.profile().security.capabilities;
    for (std::size_t i = 0; i < asked.size(); ++i) {
        // One denial each: a person sees which of them has to go.
        if (std::find(kGrantable.begin(), kGrantable.end(), asked[i]) != kGrantable.end()) continue;
        std::string grantable;
        for (const std::string_view capability : kGrantable) {
            grantable += (grantable.empty() ? "" : ", ") + std::string(capability);
        }
        draft.deny({.denial_class = DenialClass::unsupported_requirement,
                    .reason = "capability-not-grantable",
                    .key = "security.capabilities[" + std::to_string(i) + "]",
                    .requirement = asked[i],
                    .fact = "it widens what a workload can do to the kernel",
                    .mend = "remove it; grantable are " + grantable,
                    .source = {}});
    }
    // As asked: a plan that is denied shows what was wanted.
    draft.plan.security.capabilities = asked;
}

void resolve_filters(Draft& draft)
{
    plan::SecurityPlan& security = draft.plan.security;
    security.seccomp = draft.profile().security.seccomp;
    const bool strict = security.seccomp == profile::SeccompProfile::strict;
    const std::string_view rules = strict ? name::kSeccompRulesStrict : name::kSeccompRulesDefault;
    const std::string requirement = "seccomp = \"" + std::string(to_string(security.seccomp)) +
                                    "\"";
    draft.require(name::kSeccomp, "seccomp-unavailable", "security.seccomp", requirement);
    // The digest of the rules is part of the plan: another allowlist is another plan.
    draft.require(rules, "seccomp-rules-unavailable", "security.seccomp", requirement);
    draft.require(name::kNoNewPrivileges, "no-new-privileges-unavailable", "security.seccomp",
                  "no program gains privileges by being executed");
    security.seccomp_digest = draft.value_of(rules);
    // Rules become a filter for one architecture: the plan says which.
    draft.rely_on(name::kKernelArch);
}

// Defence in depth: namespaces and mounts already hold what it holds again.
void resolve_landlock(Draft& draft)
{
    const std::string text = draft.rely_on(name::kLandlock) ? draft.value_of(name::kLandlock) : "";
    std::uint32_t abi = 0;
    // No number, or none at all: 0, and the sandbox goes without.
    std::from_chars(text.data(), text.data() + text.size(), abi);
    draft.plan.security.landlock_abi = std::min(abi, kNewestLandlock);
    if (abi > 0) return;
    draft.plan.unenforced.push_back(
        {"landlock", "this kernel has no Landlock; the mount namespace holds alone"});
}

// By sandbox-init on a kernel that was chosen for it: it reports what it then reads of itself.
void resolve_guest_security(Draft& draft)
{
    plan::SecurityPlan& security = draft.plan.security;
    for (const Namespace& space : kNamespaces) security.namespaces.emplace_back(space.kind);
    security.seccomp = draft.profile().security.seccomp;
    const bool strict = security.seccomp == profile::SeccompProfile::strict;
    const std::string_view rules = strict ? name::kSeccompRulesStrict : name::kSeccompRulesDefault;
    draft.require(rules, "seccomp-rules-unavailable", "security.seccomp",
                  "seccomp = \"" + std::string(to_string(security.seccomp)) + "\"");
    security.seccomp_digest = draft.value_of(rules);
    const std::string& release = draft.plan.microvm->guest_release;
    security.landlock_abi = std::min(landlock_of_release(release), kNewestLandlock);
    if (security.landlock_abi > 0) return;
    draft.plan.unenforced.push_back(
        {"guest.landlock", "the guest's kernel release is not known to have Landlock; the mount "
                           "namespace inside holds alone"});
}

}  // namespace

void resolve_security(Draft& draft)
{
    resolve_capabilities(draft);
    plan::SecurityPlan& security = draft.plan.security;
    // The same for every profile: none of these paths is of use inside.
    for (const std::string_view path : kMasked) security.masked.emplace_back(std::string(path));
    for (const std::string_view path : kReadOnly) {
        security.read_only.emplace_back(std::string(path));
    }
    // A guest has a kernel of its own; the host's facts say nothing about it.
    if (draft.plan.driver == profile::Driver::microvm) {
        resolve_guest_security(draft);
        return;
    }
    resolve_namespaces(draft);
    resolve_filters(draft);
    resolve_landlock(draft);
}

}  // namespace sandbox::resolve
