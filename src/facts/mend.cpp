// SPDX-License-Identifier: Apache-2.0
#include "facts/facts.hpp"

#include <algorithm>
#include <array>

namespace sandbox::facts {

namespace {

struct Known {
    std::string_view name;
    std::string_view mend;  // empty where there is nothing to do
};

// Sorted by name; one entry for each constant of facts.hpp (a test counts them).
constexpr auto kKnown = std::to_array<Known>({
    {name::kCgroupCpu, "enable the cpu controller and delegate it to us"},
    {name::kCgroupCpuset, "enable the cpuset controller and delegate it to us"},
    {name::kCgroupFreezer, "mount the v1 freezer hierarchy or use cgroup v2"},
    {name::kCgroupHierarchy,
     "mount the cgroup file systems (systemd does) where /sys/fs/cgroup is empty"},
    {name::kCgroupIo, "enable the io controller on cgroup v2 and delegate it to us"},
    {name::kCgroupKill,
     "use cgroup v2 on a kernel of 5.14 or newer, or mount the v1 freezer hierarchy"},
    {name::kCgroupMemory,
     "enable the memory controller (cgroup_enable=memory) and delegate it to us"},
    {name::kCgroupParent, "set cgroup_parent in config.toml to a cgroup this user may write"},
    {name::kCgroupPids, "enable the pids controller and delegate it to us"},
    {name::kCgroupSwap, "boot with swapaccount=1, so that swap can be limited"},
    {name::kDefaultDriver, "set default_driver in config.toml to a driver listed in drivers"},
    {name::kGuestCpus, "nothing to do: the operator may say so under [microvm] in config.toml"},
    {name::kGuestMemory, "nothing to do: the operator may say so under [microvm] in config.toml"},
    {name::kGuestShares, "nothing to do: the operator may say so under [microvm] in config.toml"},
    {name::kGuestStores, "nothing to do: the operator may say so under [microvm] in config.toml"},
    {name::kDriverMicrovm,
     "add microvm to drivers in config.toml, make a guest with sandbox-mkguest, pin it with "
     "sandboxctl config init, or set isolation = \"sandbox\" to accept a shared kernel"},
    {name::kDriverNative,
     "add native to drivers in config.toml and run sandboxctl doctor, or pin driver = \"oci\""},
    {name::kDriverOci, "add oci to drivers in config.toml and run sandboxctl doctor"},
    {name::kNewuidmap, "install uidmap"},
    {name::kNft, "install nftables"},
    {name::kHostAlternatives, "nothing to do: only distributions of the Debian family have it"},
    {name::kHostCorePattern, "set kernel.core_pattern to a plain file name"},
    {name::kCpuCount, ""},
    {name::kOnlineCpus, ""},
    {name::kHostKsm, "write 0 to /sys/kernel/mm/ksm/run"},
    {name::kMemoryTotal, ""},
    {name::kHostMitigations, "update kernel and microcode, and boot without mitigations=off"},
    {name::kPrivilege,
     "run as root, or set driver = \"native\": only that one launches without root"},
    {name::kHostSmt, "boot with nosmt where sandboxes of different trust share cores"},
    {name::kHostSwap, "turn swap off or encrypt it: secrets in memory could reach the disk"},
    {name::kSubordinateIds, "give this user a range in /etc/subuid and /etc/subgid"},
    {name::kInitDigest, "reinstall this release: sandbox-init is missing"},
    {name::kKernelArch, ""},
    {name::kLegacyTiocsti, "set the sysctl dev.tty.legacy_tiocsti to 0"},
    {name::kKernelRelease, ""},
    {name::kVsockNsMode, ""},
    {name::kKvm,
     "use a host whose KVM runs guests, or set isolation = \"sandbox\" to accept a shared "
     "kernel"},
    {name::kLandlock, "boot a kernel with CONFIG_SECURITY_LANDLOCK and landlock in its lsm= list"},
    {name::kMemfdSeal, "allow executable memfds (sysctl vm.memfd_noexec below 2)"},
    {name::kIdmappedMount,
     "use a kernel of 5.12 or newer, as root, on a file system that allows idmapped mounts"},
    {name::kOverlayfs, "boot a kernel with CONFIG_OVERLAY_FS or load the overlay module"},
    {name::kRecursiveReadOnly, "use a kernel of 5.12 or newer: mount_setattr is wanted"},
    {name::kCgroupNamespace, "boot a kernel with CONFIG_CGROUPS, 4.6 or newer"},
    {name::kIpcNamespace, "boot a kernel with CONFIG_IPC_NS"},
    {name::kMountNamespace, "boot a kernel that gives mount namespaces and run as root"},
    {name::kNetNamespace, "boot a kernel with CONFIG_NET_NS"},
    {name::kPidNamespace, "boot a kernel with CONFIG_PID_NS"},
    {name::kUserNamespace,
     "boot a kernel with CONFIG_USER_NS and set user.max_user_namespaces above 0"},
    {name::kUtsNamespace, "boot a kernel with CONFIG_UTS_NS"},
    {name::kOciRuntimeDigest,
     "install crun where this user may read it, then run sandboxctl config init"},
    {name::kOciHybridCover,
     "use cgroup v2 alone, or a host where a mount namespace can cover the unified "
     "hierarchy"},
    {name::kOciRuntimePath, "install crun (apt install crun), then run sandboxctl config init"},
    {name::kOciRuntimePinned,
     "check why the file changed; if you changed it, run sandboxctl config init to pin it "
     "anew"},
    {name::kOciFdPassing, "install a certified crun: this one does not pass descriptors on"},
    {name::kOciRuntimeVersion, "install a certified crun, then run sandboxctl config init"},
    {name::kNoNewPrivileges, "boot a kernel of 3.5 or newer"},
    {name::kPidfd, "use a kernel of 5.3 or newer"},
    {name::kRlimitNofile, "raise the hard limit on open files of the service or shell"},
    {name::kSeccomp, "boot a kernel with CONFIG_SECCOMP_FILTER"},
    {name::kSeccompRulesDefault,
     "reinstall this release: its own seccomp rules do not build for this machine"},
    {name::kSeccompRulesStrict,
     "reinstall this release: its own seccomp rules do not build for this machine"},
    {name::kShimDigest, "reinstall this release: sandbox-shim is missing"},
    {name::kAccelerator,
     "use a host whose KVM runs guests, or accept emulation, which promises no boundary: accelerator "
     "= \"tcg\" and accept_emulated = true in config.toml"},
    {name::kVmmDigest, "install qemu-system-x86 where this user may read it"},
    {name::kGuestInitrd, "make a guest with sandbox-mkguest, then run sandboxctl config init"},
    {name::kGuestKernel, "make a guest with sandbox-mkguest, then run sandboxctl config init"},
    {name::kGuestRelease, "run sandboxctl config init: the pin of the kernel names its release"},
    {name::kVmmPath, "install qemu-system-x86"},
    {name::kVmmPinned, "run sandboxctl config init to pin the files of microVMs"},
    {name::kVmmVersion, "install a certified qemu-system-x86, then run sandboxctl config init"},
    {name::kVirtiofsd, "install QEMU's virtiofsd (Debian 12: qemu-system-common)"},
    {name::kVirtiofsdDigest, "install QEMU's virtiofsd where this user may read it"},
});

constexpr auto kNames = [] {
    std::array<std::string_view, kKnown.size()> names{};
    std::transform(kKnown.begin(), kKnown.end(), names.begin(),
                   [](const Known& known) { return known.name; });
    return names;
}();

static_assert(std::is_sorted(kNames.begin(), kNames.end()), "lookups are by bisection");

}  // namespace

std::span<const std::string_view> all_names() noexcept { return kNames; }

std::string_view mend(std::string_view name) noexcept
{
    const auto found = std::lower_bound(kNames.begin(), kNames.end(), name);
    if (found == kNames.end() || *found != name) return {};
    return kKnown[static_cast<std::size_t>(found - kNames.begin())].mend;
}

}  // namespace sandbox::facts
