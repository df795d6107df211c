// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/diagnostic.hpp"
#include "canon/json.hpp"
#include "supervisor/doctor.hpp"

namespace sandbox::supervisor {

namespace {

namespace name = facts::name;

// For people; the resolver never reads it.
struct Purpose {
    std::string_view fact;
    std::string_view why;
};

// What a fact is needed for. The mend of each is facts::mend's.
constexpr auto kPurposes = std::to_array<Purpose>({
    {name::kKernelRelease, "which kernel the other facts hold for"},
    {name::kKernelArch, "seccomp rules and guests are made for one architecture"},
    {name::kPrivilege, "id maps, cgroups and mounts are made as root"},
    {name::kUserNamespace, "host root is never mapped into a sandbox"},
    {name::kMountNamespace, "a sandbox sees its own mounts only"},
    {name::kPidNamespace, "a sandbox sees and signals its own processes only"},
    {name::kIpcNamespace, "shared memory and queues are its own"},
    {name::kUtsNamespace, "host name is its own"},
    {name::kNetNamespace, "network.mode = \"none\" is a network of its own with loopback only"},
    {name::kCgroupNamespace, "the path of its cgroup stays hidden"},
    {name::kSeccomp, "system calls are an allowlist"},
    {name::kSeccompRulesDefault, "the allowlist of security.seccomp = \"default\", by digest"},
    {name::kSeccompRulesStrict, "the allowlist of security.seccomp = \"strict\", by digest"},
    {name::kNoNewPrivileges, "set-id programs give nothing"},
    {name::kLandlock, "a second ring around files and sockets"},
    {name::kCgroupHierarchy, "where limits live"},
    {name::kCgroupParent, "all cgroups of sandboxes are below it"},
    {name::kCgroupMemory, "resources.memory"},
    {name::kCgroupPids, "resources.pids: a baseline always holds"},
    {name::kCgroupCpu, "resources.cpus and cpu_weight"},
    {name::kCgroupCpuset, "resources.cpuset"},
    {name::kCgroupIo, "resources.io_weight"},
    {name::kCgroupFreezer, "pause, and killing without a race on cgroup v1"},
    {name::kCgroupKill, "stop leaves no process behind"},
    {name::kCgroupSwap, "resources.swap, and memory limits that swap does not undo"},
    {name::kOverlayfs, "rootfs.read_only = false"},
    {name::kIdmappedMount, "binds where the user owns what it owned and nobody else does"},
    {name::kRecursiveReadOnly, "read-only binds cover their submounts"},
    {name::kSubordinateIds, "each sandbox has 65536 host ids of its own"},
    {name::kPidfd, "signals reach the process that was meant, never a reused number"},
    {name::kMemfdSeal, "the pinned runtime is executed from the bytes that were hashed"},
    {name::kKvm, "isolation = \"microvm\" with a hardware boundary"},
    {name::kCpuCount, "upper bound of resources.cpus"},
    {name::kMemoryTotal, "upper bound of resources.memory"},
    {name::kOnlineCpus, "what resources.cpuset may name"},
    {name::kRlimitNofile, "upper bound of process.rlimits.nofile"},
    {name::kOciRuntimePath, "the oci driver's crun"},
    {name::kOciRuntimeVersion, "only certified versions are used"},
    {name::kOciRuntimeDigest, "recorded in plan and ledger, checked again at launch"},
    {name::kOciRuntimePinned, "what runs is what the operator pinned"},
    {name::kOciFdPassing, "the channel to sandbox-init is an inherited descriptor"},
    {name::kOciHybridCover, "crun refuses hybrid hosts while it sees the unified hierarchy"},
    {name::kInitDigest, "sandbox-init is PID 1 of every sandbox"},
    {name::kShimDigest, "sandbox-shim holds each sandbox"},
    {name::kVmmPath, "isolation = \"microvm\""},
    {name::kVmmVersion, "isolation = \"microvm\""},
    {name::kVmmDigest, "isolation = \"microvm\""},
    {name::kVirtiofsd, "mounts of a microVM"},
    {name::kGuestKernel, "isolation = \"microvm\""},
    {name::kGuestInitrd, "isolation = \"microvm\""},
    {name::kVirtiofsdDigest, "mounts of a microVM, by digest"},
    {name::kAccelerator, "what executes a guest: hardware, or emulation that the operator accepts"},
    {name::kVmmPinned, "a guest is what its kernel and first program are"},
    {name::kGuestRelease, "what Landlock inside a guest can do"},
    {name::kGuestCpus, "microvm.cpus where a profile says nothing"},
    {name::kGuestMemory, "microvm.memory where a profile says nothing"},
    {name::kGuestStores, "many mounts below one of these are one share"},
    {name::kGuestShares, "where the mounts of a microVM may lie"},
    {name::kDriverOci, "isolation = \"sandbox\""},
    {name::kDriverMicrovm, "isolation = \"microvm\", the default of a profile"},
    {name::kDriverNative, "driver = \"native\""},
    {name::kDefaultDriver, "what isolation = \"sandbox\" means on this host"},
    {name::kNewuidmap, "id maps without root"},
    {name::kNft, "network.mode = \"egress\""},
    {name::kLegacyTiocsti, "a program could type into the terminal it was started from"},
    {name::kVsockNsMode, "AF_VSOCK is host-wide where this is absent; the filter refuses it"},
    {name::kHostSmt, "sibling threads leak across sandboxes of different trust"},
    {name::kHostKsm, "merged pages are a side channel between sandboxes"},
    {name::kHostAlternatives, "programs of the host's /usr that are links through it (awk, vi)"},
    {name::kHostSwap, "a sandbox's memory may reach the disk"},
    {name::kHostMitigations, "CPU flaws without a mitigation cross every boundary"},
    {name::kHostCorePattern, "a crash inside starts a host program on hostile input"},
});

// Evidence comes from the host and from tools' output: escaped, so that it cannot drive a terminal.
std::string line_of(const Finding& finding)
{
    std::string text = fmt::format("{:<8} {:<26} {}\n", to_string(finding.severity), finding.name,
                                   escaped(finding.value.empty() ? "-" : finding.value));
    // What is fine needs one line: a page of reasons would hide the one that counts.
    if (finding.severity == Severity::ok || finding.severity == Severity::note) return text;
    if (!finding.evidence.empty())
        text += fmt::format("           seen: {}\n", escaped(finding.evidence));
    if (!finding.why.empty()) text += fmt::format("           why:  {}\n", escaped(finding.why));
    if (!finding.mend.empty()) text += fmt::format("           mend: {}\n", escaped(finding.mend));
    return text;
}

// No heading without a line.
void add_section(std::string& text, std::string_view title, const std::vector<Finding>& findings)
{
    if (findings.empty()) return;
    text += fmt::format("\n{}\n", title);
    for (const Finding& finding : findings) text += line_of(finding);
}

// Nothing escaped: programs read it.
canon::Json array_of(const std::vector<Finding>& findings)
{
    canon::Json array = canon::Json::array();
    for (const Finding& finding : findings) {
        array.push_back({{"name", finding.name},
                         {"severity", std::string(to_string(finding.severity))},
                         {"value", finding.value},
                         {"evidence", finding.evidence},
                         {"why", finding.why},
                         {"mend", finding.mend}});
    }
    return array;
}

// The one line that a person came for.
std::string verdict(const DoctorReport& report)
{
    const bool good = exit_status(report) == 0;
    if (report.profile_name) {
        return fmt::format("profile {}: {}\n", escaped(*report.profile_name),
                           good ? "this host can run it as it stands" : "denied here, see below");
    }
    if (!report.user.empty() && !good)
        return "this user cannot launch sandboxes here: see what is missing\n";
    return good ? "this host can run isolation = \"sandbox\"\n"
                : "this host cannot launch sandboxes yet: see the serious findings\n";
}

}  // namespace

// Empty for a fact without an entry: the finding is then shown without a reason.
FactHelp help_for(std::string_view fact)
{
    const auto purpose = std::ranges::find(kPurposes, fact, &Purpose::fact);
    // The mend lives with the facts: the resolver prints the same one in its denials.
    return {purpose == kPurposes.end() ? std::string_view{} : purpose->why, facts::mend(fact)};
}

std::string render(const DoctorReport& report)
{
    // First what the caller asked about, then what it depends on.
    std::string text = verdict(report);
    add_section(text, "PROFILE", report.profile);
    add_section(text, "POLICY", report.policy);
    add_section(text, "ORDINARY USER: what launches without root need", report.user);
    add_section(text, "FACTS", report.facts);
    add_section(text, "ADVISORIES of the tools found", report.advisories);
    add_section(text, "DUTIES of the host's operator", report.duties);
    return text;
}

canon::Json to_json(const DoctorReport& report)
{
    canon::Json json = {{"ok", exit_status(report) == 0},
                        {"facts", array_of(report.facts)},
                        {"advisories", array_of(report.advisories)},
                        {"duties", array_of(report.duties)},
                        {"user", array_of(report.user)},
                        {"policy", array_of(report.policy)},
                        {"denials", array_of(report.profile)}};
    if (report.profile_name) json["profile"] = *report.profile_name;
    return json;
}

}  // namespace sandbox::supervisor
