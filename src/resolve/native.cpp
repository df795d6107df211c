// SPDX-License-Identifier: Apache-2.0
#include "resolve/native.hpp"

#include <array>

namespace sandbox::resolve {

namespace name = facts::name;

namespace {

constexpr auto kUnavailable = DenialClass::backend_unavailable;
constexpr std::string_view kRequirement = "driver = \"native\"";

// The digest goes into the plan, so that the launch executes that file and no other.
void pin(Draft& draft, std::string_view fact, std::string_view artifact, std::string_view reason)
{
    if (draft.require(fact, reason, "driver", "the driver native is complete", kUnavailable))
        draft.plan.artifacts[std::string(artifact)] = draft.value_of(fact);
}

// What root has anyway: ids of its own to give, and a place for cgroups.
void require_of_user(Draft& draft)
{
    struct Need {
        std::string_view fact;
        std::string_view reason;
        std::string_view mend;
    };
    constexpr std::array<Need, 3> kNeeds{{
        {name::kNewuidmap, "id-helpers-missing", "as root: install uidmap"},
        {name::kSubordinateIds, "subordinate-ids-missing",
         "as root: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 USER, with ids "
         "nobody else has"},
        {name::kCgroupParent, "cgroup-not-delegated",
         "on cgroup v2 under systemd: systemd-run --user --scope -p Delegate=yes sandboxctl …; else "
         "have root make a cgroup that is yours and name one below it as cgroup_parent"},
    }};
    for (const Need& need : kNeeds) {
        if (draft.rely_on(need.fact)) continue;
        draft.deny({.denial_class = kUnavailable,
                    .reason = std::string(need.reason),
                    .key = "driver",
                    .requirement = std::string(kRequirement) + " without root",
                    .fact = draft.describe(need.fact),
                    .mend = std::string(need.mend),
                    .source = {}});
    }
    const profile::Profile& profile = draft.profile();
    if (profile.network.mode != profile::NetworkMode::host || profile.security.capabilities.empty())
        return;
    // The host's network belongs to a user namespace that none of ours has rights in: a capability
    // would be shown and do nothing.
    draft.deny({.denial_class = DenialClass::unsupported_requirement,
                .reason = "capabilities-without-own-network",
                .key = "security.capabilities",
                .requirement = "capabilities together with mode = \"host\"",
                .fact = draft.describe(name::kPrivilege),
                .mend = "remove the capabilities, set mode = \"none\", or run as root",
                .source = {}});
}

}  // namespace

void require_native(Draft& draft)
{
    // First: it says whether the operator wants the driver at all.
    draft.require(name::kDriverNative, "native-not-available", "driver", kRequirement,
                  kUnavailable);
    // Recorded in the plan: how the box is made follows from it.
    if (draft.require(name::kPrivilege, "root-required", "driver", kRequirement, kUnavailable) &&
        draft.value_of(name::kPrivilege) != "root")
        require_of_user(draft);
    pin(draft, name::kInitDigest, "sandbox-init", "sandbox-init-missing");
    pin(draft, name::kShimDigest, "sandbox-shim", "sandbox-shim-missing");
    // Nobody can change the bytes between hashing and executing.
    draft.require(name::kMemfdSeal, "sealed-execution-unavailable", "driver",
                  "sandbox-init is executed from sealed, hashed memory");
    draft.require(name::kPidfd, "pidfd-unavailable", "driver",
                  "processes are known by identity, not by number");
}

}  // namespace sandbox::resolve
