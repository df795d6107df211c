// SPDX-License-Identifier: Apache-2.0
#include "resolve/microvm.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "profile/protected.hpp"
#include "resolve/microvm_shares.hpp"

namespace sandbox::resolve {

namespace name = facts::name;
using plan::Accelerator;

namespace {

constexpr auto kNoBackend = DenialClass::backend_unavailable;

// The only architecture with QEMU's microvm machine.
constexpr std::string_view kGuestArch = "x86_64";

// What a denial points at.
// Asked by a profile's words, or by its silence.
struct Asked {
    std::string key;
    std::string requirement;
};

Asked asked_of(const Draft& draft)
{
    if (draft.profile().driver) return {"driver", "driver = \"microvm\""};
    Asked asked{"isolation", "isolation = \"microvm\""};
    // Said, because nobody wrote it: the default asks for a machine.
    if (!draft.is_written("isolation")) asked.requirement += " (the default)";
    return asked;
}

// One denial for a host that runs no guests: which of its parts are missing is what doctor tells.
void refuse_unavailable(Draft& draft, const Asked& asked, bool executes)
{
    std::string fact;
    // The KVM fact says more than the accelerator's, if there is one.
    if (!executes)
        fact = draft.describe(draft.rely_on(name::kKvm) ? name::kAccelerator : name::kKvm);
    if (!draft.rely_on(name::kDriverMicrovm)) {
        fact += (fact.empty() ? "" : "; ") + draft.describe(name::kDriverMicrovm);
    }
    draft.deny(
        {.denial_class = kNoBackend,
         .reason = executes ? "microvm-not-available" : "kvm-guest-unavailable",
         .key = asked.key,
         .requirement = asked.requirement,
         .fact = std::move(fact),
         .mend = executes ? "mend what sandboxctl doctor says of driver.microvm, or set isolation "
                            "= \"sandbox\" to accept a shared kernel"
                          : "set isolation = \"sandbox\" to accept a shared kernel, use a host "
                            "whose KVM runs guests, or have the operator accept emulation, which "
                            "promises no boundary: accelerator = \"tcg\" and accept_emulated = "
                            "true in config.toml",
         .source = {}});
}

void pin_part(Draft& draft, const Asked& asked, std::string_view fact, std::string_view artifact,
              std::string_view reason)
{
    if (draft.require(fact, reason, asked.key, "the driver microvm is complete", kNoBackend))
        draft.plan.artifacts[std::string(artifact)] = draft.value_of(fact);
}

void refuse_network(Draft& draft)
{
    if (draft.profile().network.mode != profile::NetworkMode::host) return;
    draft.deny({.denial_class = DenialClass::unsupported_requirement,
                .reason = "host-network-in-guest",
                .key = "network.mode",
                .requirement = "mode = \"host\"",
                .fact = "a guest has a network stack of its own and no device",
                .mend = "set mode = \"none\", or isolation = \"sandbox\"",
                .source = {}});
}

// As facts are values of text, lists in them have colons, which no path of a config has.
std::vector<std::string> split(std::string_view list)
{
    std::vector<std::string> out;
    while (!list.empty()) {
        const std::size_t end = std::min(list.find(':'), list.size());
        if (end > 0) out.emplace_back(list.substr(0, end));
        list.remove_prefix(std::min(end + 1, list.size()));
    }
    return out;
}

struct HostThing {
    std::string_view root;
    std::string_view reason;
    std::string_view fact;
    std::string_view mend;
};

// What names a thing of this host's kernel, which a guest does not have.
constexpr std::array<HostThing, 2> kHostThings{{
    {"/dev", "device-node-in-guest", "a device of the host is none of a guest's kernel",
     "remove the mount; a guest has its own /dev"},
    {"/sys/fs/cgroup", "cgroup-in-guest",
     "a cgroup of the host holds no process of a guest, which has cgroups of its own",
     "remove the mount; limits of [resources] hold inside the guest"},
}};

// Before shares are folded: it would be shared and mean nothing inside.
bool refuse_host_thing(Draft& draft, const std::string& source, const std::string& key)
{
    for (const HostThing& thing : kHostThings) {
        if (!profile::is_path_prefix(thing.root, source)) continue;
        draft.deny({.denial_class = DenialClass::unsupported_requirement,
                    .reason = std::string(thing.reason),
                    .key = key,
                    .requirement = "bind of " + source,
                    .fact = std::string(thing.fact),
                    .mend = std::string(thing.mend),
                    .source = {}});
        return true;
    }
    return false;
}

void refuse_share(Draft& draft, const RefusedShare& refused)
{
    // By its place in the profile, so that the denial finds its line.
    const std::string key = "mount[" + std::to_string(refused.place) + "]";
    const bool counted = refused.refusal == ShareRefusal::too_many_shares;
    std::string requirement = "every source of a bind can be shared";
    std::string fact = "more than " + std::to_string(kMostShares) + " folders remain";
    std::string mend =
        "bind fewer folders, or have the operator name the store they lie in: stores "
        "under [microvm] in config.toml";
    if (!counted) {
        const profile::Mount& mount = draft.profile().mounts[refused.place];
        requirement = "bind of " + mount.source + " to " + mount.target.str();
    }
    if (refused.refusal == ShareRefusal::path_in_no_share) {
        fact = draft.describe(name::kGuestShares);
        mend = "bind a folder below one of those, or have the operator add its place: shares under "
               "[microvm] in config.toml";
    }
    if (refused.refusal == ShareRefusal::writable_in_read_only_share) {
        requirement += ", writable";
        fact = refused.root + " is a store of [microvm] in config.toml, and shared read-only";
        mend = "set read_only = true, or bind a folder outside " + refused.root;
    }
    // Of too many none is to blame: the list as a whole is named.
    draft.deny({.denial_class = DenialClass::unsupported_requirement,
                .reason = std::string(to_string(refused.refusal)),
                .key = counted
                           ? "mount"
                           : key + (mend.starts_with("set read_only") ? ".read_only" : ".source"),
                .requirement = std::move(requirement),
                .fact = std::move(fact),
                .mend = std::move(mend),
                .source = {}});
}

// What the source "host" or a folder as root shows is not the profile's choice of a place. One with
// other owners than a share that holds it stays apart: its owners would show as that share's.
void share_always(std::vector<plan::SharePlan>& shares, const HostPath& source,
                  plan::Ownership ownership)
{
    const bool there = std::any_of(shares.begin(), shares.end(), [&](const plan::SharePlan& share) {
        return share.read_only && share.ownership == ownership &&
               profile::is_path_prefix(share.source.str(), source.str());
    });
    if (!there) shares.push_back({source, true, ownership});
}

}  // namespace

plan::IsolationClass microvm_class(Draft& draft)
{
    // A gap says which accelerator was meant as little as it says that one works: the class that
    // was asked for stands in a plan that is never made.
    return draft.value_of(name::kAccelerator) == "tcg" ? plan::IsolationClass::emulated_vm
                                                       : plan::IsolationClass::hardware_vm;
}

void require_microvm(Draft& draft)
{
    const Asked asked = asked_of(draft);
    plan::MicrovmPlan& microvm = draft.plan.microvm.emplace();
    const bool executes = draft.rely_on(name::kAccelerator);
    // Relied on, so that the plan says whose KVM it was made for.
    if (executes && draft.value_of(name::kAccelerator) == "kvm") draft.rely_on(name::kKvm);
    microvm.accelerator = draft.value_of(name::kAccelerator) == "tcg" ? Accelerator::tcg
                                                                      : Accelerator::kvm;
    microvm.guest_arch = draft.value_of(name::kKernelArch);
    microvm.guest_release = draft.value_of(name::kGuestRelease);
    // Before the returns below: a person should read all denials at once.
    refuse_network(draft);
    if (!executes || !draft.rely_on(name::kDriverMicrovm)) {
        refuse_unavailable(draft, asked, executes);
        return;
    }
    // Of the host: a guest of another architecture would be emulated.
    if (microvm.guest_arch != kGuestArch) {
        draft.deny({.denial_class = kNoBackend,
                    .reason = "guest-architecture-unsupported",
                    .key = asked.key,
                    .requirement = asked.requirement,
                    .fact = draft.describe(name::kKernelArch),
                    .mend = "use an x86-64 host: QEMU has its microvm machine there only",
                    .source = {}});
    }
    if (draft.require(name::kPrivilege, "root-required", asked.key, asked.requirement,
                      kNoBackend) &&
        draft.value_of(name::kPrivilege) != "root") {
        draft.deny({.denial_class = kNoBackend,
                    .reason = "root-required",
                    .key = asked.key,
                    .requirement = asked.requirement,
                    .fact = draft.describe(name::kPrivilege),
                    .mend = std::string(facts::mend(name::kPrivilege)),
                    .source = {}});
    }
    draft.require(name::kVmmVersion, "vmm-missing", asked.key, asked.requirement, kNoBackend);
    pin_part(draft, asked, name::kVmmDigest, "vmm", "vmm-missing");
    pin_part(draft, asked, name::kVirtiofsdDigest, "virtiofsd", "virtiofsd-missing");
    pin_part(draft, asked, name::kGuestKernel, "guest.kernel", "guest-kernel-missing");
    pin_part(draft, asked, name::kGuestInitrd, "guest.initrd", "guest-initrd-missing");
    pin_part(draft, asked, name::kInitDigest, "sandbox-init", "sandbox-init-missing");
    pin_part(draft, asked, name::kShimDigest, "sandbox-shim", "sandbox-shim-missing");
    draft.require(name::kVmmPinned, "artifact-pin-mismatch", asked.key,
                  "the guest's kernel and initrd are the pinned ones",
                  DenialClass::backend_artifact_mismatch);
    draft.require(name::kPidfd, "pidfd-unavailable", asked.key,
                  "processes are known by identity, not by number");
    // After all checks: a warning belongs to a plan.
    if (microvm.accelerator != Accelerator::tcg) return;
    draft.plan.warnings.push_back(
        "EMULATED: the operator accepts accelerator = \"tcg\" in place of hardware. QEMU's own code "
        "is all that parts guest and host, and no boundary is promised");
}

void resolve_shares(Draft& draft)
{
    const ShareRules rules{split(draft.value_of(name::kGuestStores)),
                           split(draft.value_of(name::kGuestShares))};
    const auto& mounts = draft.profile().mounts;
    std::vector<ShareRequest> requests;
    // Only binds: a tmpfs and a mask are made inside.
    for (std::size_t i = 0; i < mounts.size(); ++i) {
        if (mounts[i].type != profile::MountType::bind) continue;
        const std::string key = "mount[" + std::to_string(i) + "].source";
        if (refuse_host_thing(draft, mounts[i].source, key)) continue;
        requests.push_back({mounts[i].source, mounts[i].read_only, i});
    }
    // As the mounts have it: for root nothing is mapped.
    const plan::Ownership ownership = draft.profile().process.user.uid == 0
                                          ? plan::Ownership::overflow
                                          : plan::Ownership::idmap_user;
    Shares folded = fold_shares(requests, rules, ownership);
    for (const RefusedShare& refused : folded.refused) refuse_share(draft, refused);
    std::vector<plan::SharePlan>& shares = draft.plan.microvm->shares;
    shares = std::move(folded.shares);
    // After the folding: the root's own source is not the profile's choice.
    share_always(shares, draft.plan.rootfs.source, draft.plan.rootfs.ownership);
    for (const plan::MountPlan& mount : draft.plan.mounts) {
        // Mounts that the resolver has added, such as those of the root.
        const bool ours = std::none_of(
            mounts.begin(), mounts.end(),
            [&](const profile::Mount& asked) { return asked.target == mount.target; });
        if (mount.type == profile::MountType::bind && ours)
            share_always(shares, mount.source, mount.ownership);
    }
    // Sorted, read-only first: places are names inside, and equal requests must give equal plans.
    std::stable_sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) {
        if (a.read_only != b.read_only) return a.read_only;
        return a.source < b.source;
    });
    // Once more: the root's shares came on top.
    if (folded.refused.empty() && shares.size() > kMostShares)
        refuse_share(draft, {ShareRefusal::too_many_shares, 0, {}});
}

std::uint32_t landlock_of_release(std::string_view release) noexcept
{
    // Documentation/userspace-api/landlock.rst, "Previous limitations": the release of each ABI.
    struct Since {
        std::uint32_t major;
        std::uint32_t minor;
        std::uint32_t abi;
    };
    constexpr std::array<Since, 7> kSince{
        {{6, 15, 7}, {6, 12, 6}, {6, 10, 5}, {6, 7, 4}, {6, 2, 3}, {5, 19, 2}, {5, 13, 1}}};
    std::uint32_t major = 0;
    std::uint32_t minor = 0;
    const char* const end = release.data() + release.size();
    const auto first = std::from_chars(release.data(), end, major);
    // "6.12.3+deb13": what stands behind the two numbers does not matter.
    if (first.ec != std::errc{} || first.ptr == end || *first.ptr != '.') return 0;
    if (std::from_chars(first.ptr + 1, end, minor).ec != std::errc{}) return 0;
    for (const Since& since : kSince) {
        if (major > since.major || (major == since.major && minor >= since.minor)) return since.abi;
    }
    return 0;
}

}  // namespace sandbox::resolve
