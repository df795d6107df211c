// SPDX-License-Identifier: Apache-2.0
#include "resolve/steps.hpp"

#include <algorithm>

namespace sandbox::resolve {

using profile::MountType;
using profile::NetworkMode;
using profile::RuleAction;

namespace {

// One sentence for all: the key says what is meant, and the release notes what has changed.
constexpr std::string_view kNoDriver = "no driver of this release enforces it";

void refuse(Draft& draft, std::string_view reason, const std::string& key,
            const std::string& requirement, std::string_view mend)
{
    draft.deny({.denial_class = DenialClass::unsupported_requirement,
                .reason = std::string(reason),
                .key = key,
                .requirement = requirement,
                .fact = std::string(kNoDriver),
                .mend = std::string(mend),
                .source = {}});
}

// Parsed and typed, so that a profile of a later release is refused with a reason, not as a typo.
void check_files(Draft& draft)
{
    const profile::Profile& profile = draft.profile();
    if (const auto* image = std::get_if<profile::ImageRootfs>(&profile.rootfs.source)) {
        refuse(draft, "rootfs-image-unsupported", "rootfs.source", "image:" + image->reference,
               "unpack the image and use source = \"dir:/path\", or source = \"host\"");
    }
    for (std::size_t i = 0; i < profile.mounts.size(); ++i) {
        if (profile.mounts[i].type != MountType::volume) continue;
        refuse(draft, "volume-mount-unsupported", "mount[" + std::to_string(i) + "].type",
               "volume " + profile.mounts[i].source, "use type = \"bind\" with a folder you made");
    }
    if (profile.resources.disk) {
        refuse(draft, "disk-limit-unsupported", "resources.disk",
               "disk = " + format(*profile.resources.disk),
               "remove disk; tmpfs mounts have a size and count towards memory");
    }
}

void check_network(Draft& draft)
{
    const profile::Network& network = draft.profile().network;
    if (network.mode == NetworkMode::egress) {
        refuse(draft, "network-egress-unsupported", "network.mode", "mode = \"egress\"",
               "set mode = \"none\"");
    }
    // Rules and ports outside egress are a contradiction that check_profile names; here only what
    // no driver can do.
    const bool allows = std::any_of(
        network.rules.begin(), network.rules.end(),
        [](const auto& rule) { return rule.action == RuleAction::allow; });
    if (allows) {
        refuse(draft, "network-rules-unsupported", "network.allow",
               "destinations are allowed by name", "remove the allow rules");
    }
    if (!network.publish.empty()) {
        refuse(draft, "network-publish-unsupported", "network.publish", "ports are published",
               "remove publish; a service can listen on a socket in a bind mount");
    }
}

}  // namespace

void check_unsupported(Draft& draft)
{
    const profile::Profile& profile = draft.profile();
    check_files(draft);
    check_network(draft);
    const bool sized = profile.microvm.cpus || profile.microvm.memory;
    // With the microvm driver the size is used; with another it would be ignored, and nothing may
    // be.
    if (sized && draft.plan.driver != profile::Driver::microvm) {
        refuse(draft, "microvm-size-without-microvm", "microvm", "the guest has a size of its own",
               "remove [microvm] and use [resources]");
    }
}

}  // namespace sandbox::resolve
