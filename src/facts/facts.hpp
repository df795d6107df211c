// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "canon/canon.hpp"

namespace sandbox::facts {

// What a probe found. `note` informs and never satisfies or fails a requirement by itself.
enum class FactStatus { ok, gap, note };

std::string_view to_string(FactStatus status) noexcept;

struct Fact {
    FactStatus status = FactStatus::gap;
    std::string value;     // normalised, enters plans: "7", "v1", "sha256:…", "1.8.1"
    std::string evidence;  // what was tried and seen; never enters a plan

    bool operator==(const Fact&) const = default;
};

// One host, once. An immutable value: the resolver's only view of the host.
class CapabilitySnapshot {
public:
    CapabilitySnapshot() = default;
    explicit CapabilitySnapshot(std::map<std::string, Fact> facts) : facts_(std::move(facts)) {}

    const std::map<std::string, Fact>& facts() const noexcept { return facts_; }

    // Null when the snapshot does not know the name: the same as a gap.
    const Fact* find(std::string_view name) const;
    bool ok(std::string_view name) const;
    std::string_view value(std::string_view name) const;  // empty unless the status is ok

    bool operator==(const CapabilitySnapshot&) const = default;

private:
    std::map<std::string, Fact> facts_;
};

// File format: docs/formats/snapshot.md. `version` is kSnapshotVersion.
inline constexpr int kSnapshotVersion = 1;
canon::Json to_json(const CapabilitySnapshot& snapshot);
[[nodiscard]] Result<CapabilitySnapshot> snapshot_from_json(const canon::Json& json);

// The closed list of fact names. Each has one probe, one schema entry and one mend text.
// clang-format off: a table
namespace name {
inline constexpr std::string_view kKernelRelease = "kernel.release";            // note, "6.1.0"
inline constexpr std::string_view kKernelArch = "kernel.arch";                  // note, "x86_64"
inline constexpr std::string_view kPrivilege = "host.privilege";                // "root" | "user"
inline constexpr std::string_view kUserNamespace = "namespace.user";
inline constexpr std::string_view kMountNamespace = "namespace.mount";
inline constexpr std::string_view kPidNamespace = "namespace.pid";
inline constexpr std::string_view kIpcNamespace = "namespace.ipc";
inline constexpr std::string_view kUtsNamespace = "namespace.uts";
inline constexpr std::string_view kNetNamespace = "namespace.net";
inline constexpr std::string_view kCgroupNamespace = "namespace.cgroup";
inline constexpr std::string_view kSeccomp = "seccomp.filter";                  // filter really loaded
inline constexpr std::string_view kSeccompRulesDefault = "seccomp.rules.default";  // digest of our rules
inline constexpr std::string_view kSeccompRulesStrict = "seccomp.rules.strict";
inline constexpr std::string_view kNoNewPrivileges = "process.no_new_privs";
inline constexpr std::string_view kLandlock = "landlock.abi";                   // "7"
inline constexpr std::string_view kCgroupHierarchy = "cgroup.hierarchy";        // "v2" | "v1" | "hybrid"
inline constexpr std::string_view kCgroupParent = "cgroup.parent";              // path below the hierarchy root
inline constexpr std::string_view kCgroupMemory = "cgroup.memory";              // "v1" | "v2": writable there
inline constexpr std::string_view kCgroupPids = "cgroup.pids";
inline constexpr std::string_view kCgroupCpu = "cgroup.cpu";
inline constexpr std::string_view kCgroupCpuset = "cgroup.cpuset";
inline constexpr std::string_view kCgroupIo = "cgroup.io";
inline constexpr std::string_view kCgroupFreezer = "cgroup.freezer";
inline constexpr std::string_view kCgroupKill = "cgroup.kill";                  // cgroup.kill or freezer + signal
inline constexpr std::string_view kCgroupSwap = "cgroup.swap";                  // memsw / memory.swap.max
inline constexpr std::string_view kOverlayfs = "mount.overlayfs";
inline constexpr std::string_view kIdmappedMount = "mount.idmapped";
inline constexpr std::string_view kRecursiveReadOnly = "mount.recursive_readonly";  // mount_setattr
inline constexpr std::string_view kSubordinateIds = "ids.subordinate";          // "BASE:COUNT" usable ranges
inline constexpr std::string_view kPidfd = "process.pidfd";
inline constexpr std::string_view kMemfdSeal = "memfd.sealed_exec";
inline constexpr std::string_view kKvm = "kvm.guest";                           // a guest took interrupts
inline constexpr std::string_view kCpuCount = "host.cpus";                      // note, "2"
inline constexpr std::string_view kMemoryTotal = "host.memory";                 // note, bytes
inline constexpr std::string_view kOnlineCpus = "host.cpuset";                  // note, "0-1"
inline constexpr std::string_view kRlimitNofile = "rlimit.nofile.hard";         // note, "20000"
inline constexpr std::string_view kOciRuntimePath = "oci.runtime.path";
inline constexpr std::string_view kOciRuntimeVersion = "oci.runtime.version";
inline constexpr std::string_view kOciRuntimeDigest = "oci.runtime.digest";
inline constexpr std::string_view kOciRuntimePinned = "oci.runtime.pinned";     // "config" (pin matches) | "default" (certified, no pin)
inline constexpr std::string_view kOciFdPassing = "oci.runtime.preserve_fds";
inline constexpr std::string_view kOciHybridCover = "oci.runtime.hybrid_cover"; // needed/not, "covered" | "plain"
inline constexpr std::string_view kInitDigest = "init.digest";                  // sandbox-init
inline constexpr std::string_view kShimDigest = "shim.digest";
inline constexpr std::string_view kVmmPath = "vmm.path";                        // qemu-system-*
inline constexpr std::string_view kVmmVersion = "vmm.version";
inline constexpr std::string_view kVmmDigest = "vmm.digest";
inline constexpr std::string_view kVirtiofsd = "vmm.virtiofsd";
inline constexpr std::string_view kVirtiofsdDigest = "vmm.virtiofsd_digest";
inline constexpr std::string_view kAccelerator = "vmm.accelerator";             // usable: "kvm" | "tcg"
inline constexpr std::string_view kVmmPinned = "vmm.pinned";                    // "config" | "default", of all four files
inline constexpr std::string_view kGuestRelease = "vmm.guest_release";          // note, "6.12.117+deb12-cloud-amd64"
inline constexpr std::string_view kGuestCpus = "config.microvm_cpus";           // note, the operator's size
inline constexpr std::string_view kGuestMemory = "config.microvm_memory";       // note, bytes
inline constexpr std::string_view kGuestStores = "config.microvm_stores";       // note, paths joined by ':'
inline constexpr std::string_view kGuestShares = "config.microvm_shares";       // note, the same
inline constexpr std::string_view kGuestKernel = "vmm.guest_kernel";
inline constexpr std::string_view kDriverOci = "driver.oci";                    // configured and usable
inline constexpr std::string_view kDriverMicrovm = "driver.microvm";
inline constexpr std::string_view kDriverNative = "driver.native";                // whose pins: "config" | "default"
inline constexpr std::string_view kDefaultDriver = "config.default_driver";     // for isolation = sandbox
inline constexpr std::string_view kNewuidmap = "helper.newuidmap";
inline constexpr std::string_view kNft = "helper.nft";
inline constexpr std::string_view kLegacyTiocsti = "kernel.legacy_tiocsti";     // note
inline constexpr std::string_view kVsockNsMode = "kernel.vsock_ns_mode";        // note
inline constexpr std::string_view kHostSmt = "host.smt";                        // note, "on" | "off" | "unknown"
inline constexpr std::string_view kHostKsm = "host.ksm";                        // note
inline constexpr std::string_view kHostAlternatives = "host.alternatives";      // "/etc/alternatives"
inline constexpr std::string_view kHostSwap = "host.swap";                      // note, "on" | "off"
inline constexpr std::string_view kHostMitigations = "host.mitigations";        // note, "vulnerable: …" | "mitigated"
inline constexpr std::string_view kHostCorePattern = "host.core_pattern";       // note, "file" | "pipe"
inline constexpr std::string_view kGuestInitrd = "vmm.guest_initrd";
}  // namespace name
// clang-format on

// Every name above, sorted.
std::span<const std::string_view> all_names() noexcept;

// What an operator does about a gap in `name`: one line, imperative; empty for a name not known.
std::string_view mend(std::string_view name) noexcept;

}  // namespace sandbox::facts
