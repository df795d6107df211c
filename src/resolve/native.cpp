// SPDX-License-Identifier: Apache-2.0
#include "resolve/native.hpp"

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

}  // namespace

void require_native(Draft& draft)
{
    // First: it says whether the operator wants the driver at all.
    draft.require(name::kDriverNative, "native-not-available", "driver", kRequirement,
                  kUnavailable);
    // Two ways to fail: nobody knows, or it is known and not root.
    if (draft.require(name::kPrivilege, "root-required", "driver", kRequirement, kUnavailable) &&
        draft.value_of(name::kPrivilege) != "root") {
        draft.deny({.denial_class = kUnavailable,
                    .reason = "root-required",
                    .key = "driver",
                    .requirement = std::string(kRequirement),
                    .fact = draft.describe(name::kPrivilege),
                    .mend = std::string(facts::mend(name::kPrivilege)),
                    .source = {}});
    }
    pin(draft, name::kInitDigest, "sandbox-init", "sandbox-init-missing");
    pin(draft, name::kShimDigest, "sandbox-shim", "sandbox-shim-missing");
    // Nobody can change the bytes between hashing and executing.
    draft.require(name::kMemfdSeal, "sealed-execution-unavailable", "driver",
                  "sandbox-init is executed from sealed, hashed memory");
    draft.require(name::kPidfd, "pidfd-unavailable", "driver",
                  "processes are known by identity, not by number");
}

}  // namespace sandbox::resolve
