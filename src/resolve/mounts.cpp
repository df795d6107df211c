// SPDX-License-Identifier: Apache-2.0
#include "resolve/steps.hpp"

#include <algorithm>

namespace sandbox::resolve {

namespace name = facts::name;
using plan::MountPlan;
using plan::Ownership;
using profile::MountType;

namespace {

constexpr std::uint32_t kScratchMode = 01777;  // as /tmp: the user, whatever its id, can write

MountPlan bind(Draft& draft, const profile::Mount& mount, const std::string& key)
{
    MountPlan out;
    out.type = MountType::bind;
    out.source = HostPath(mount.source);
    out.target = mount.target;
    out.read_only = mount.read_only;
    // Mapping root would show it files that only the host's root may read; without a mapping the
    // user sees every owner as overflow.
    const bool root = draft.profile().process.user.uid == 0;
    out.ownership = root ? Ownership::overflow : Ownership::idmap_user;
    const std::string requirement = "bind of " + mount.source + " to " + mount.target.str();
    // Without idmapping the user could write as somebody else, or not at all.
    if (!root) {
        draft.require(name::kIdmappedMount, "idmapped-mounts-unavailable", key + ".source",
                      requirement + " maps the profile's user only");
    }
    // Only recursive: a plain read-only bind leaves its submounts writable (mount_setattr(2)).
    if (mount.read_only) {
        draft.require(name::kRecursiveReadOnly, "recursive-read-only-unavailable",
                      key + ".read_only", requirement + " is read-only with all below it");
    }
    return out;
}

MountPlan scratch(const profile::Mount& mount)
{
    MountPlan out;
    out.type = MountType::tmpfs;
    out.target = mount.target;
    out.read_only = mount.read_only;
    // A fresh tmpfs has no foreign owners.
    out.ownership = Ownership::overflow;
    out.size = mount.size;
    out.mode = mount.mode.value_or(kScratchMode);
    return out;
}

// The host's /usr is whole only with its links through /etc/alternatives: part of the source
// "host", not a grant of the profile, and so no matter of mount_sources.
void add_alternatives(Draft& draft)
{
    // Only where the host has it and it is a folder; recorded, because the plan depends on it.
    const bool host = std::holds_alternative<profile::HostRootfs>(draft.profile().rootfs.source);
    if (!host || !draft.rely_on(name::kHostAlternatives)) return;
    MountPlan out;
    out.type = MountType::bind;
    out.source = HostPath(draft.value_of(name::kHostAlternatives));
    out.target = GuestPath(out.source.str());
    out.read_only = true;
    out.ownership = Ownership::overflow;
    // The profile's own mount at that place wins.
    for (const profile::Mount& mount : draft.profile().mounts) {
        if (mount.target == out.target || mount.target.str() == "/etc") return;
    }
    draft.plan.mounts.push_back(std::move(out));
}

}  // namespace

void resolve_mounts(Draft& draft)
{
    const auto& asked = draft.profile().mounts;
    auto& mounts = draft.plan.mounts;
    for (std::size_t i = 0; i < asked.size(); ++i) {
        const std::string key = "mount[" + std::to_string(i) + "]";
        // In the order asked; sorted below, because the order of a profile means nothing.
        switch (asked[i].type) {
        case MountType::bind: mounts.push_back(bind(draft, asked[i], key)); break;
        case MountType::tmpfs: mounts.push_back(scratch(asked[i])); break;
        case MountType::volume: break;  // refused by check_unsupported
        }
    }
    add_alternatives(draft);
    // A parent's path is a prefix of its children's and sorts before them.
    std::stable_sort(mounts.begin(), mounts.end(),
                     [](const MountPlan& a, const MountPlan& b) { return a.target < b.target; });
    for (const profile::Mask& mask : draft.profile().masks) draft.plan.masks.push_back(mask.path);
    std::sort(draft.plan.masks.begin(), draft.plan.masks.end());
}

}  // namespace sandbox::resolve
