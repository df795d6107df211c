// SPDX-License-Identifier: Apache-2.0
#include "resolve/steps.hpp"

#include <optional>

#include "profile/names.hpp"
#include "resolve/microvm.hpp"
#include "resolve/native.hpp"

namespace sandbox::resolve {

namespace name = facts::name;
using plan::IsolationClass;
using profile::Driver;
using profile::Isolation;

namespace {

IsolationClass class_of(Draft& draft, Driver driver)
{
    return driver == Driver::microvm ? microvm_class(draft) : IsolationClass::shared_kernel;
}

// The order of IsolationClass is its strength: comparing is meaningful.
IsolationClass least_for(Isolation isolation)
{
    return isolation == Isolation::microvm ? IsolationClass::hardware_vm
                                           : IsolationClass::shared_kernel;
}

std::string setting(std::string_view key, std::string_view value)
{
    return std::string(key) + " = \"" + std::string(value) + "\"";
}

Driver chosen(Draft& draft)
{
    const profile::Profile& profile = draft.profile();
    if (profile.driver) return *profile.driver;
    // No look at the host: "microvm" that is not to be had is denied, never replaced.
    if (profile.isolation == Isolation::microvm) return Driver::microvm;
    const std::string value = draft.value_of(name::kDefaultDriver);
    if (const auto driver = profile::from_name<Driver>(value)) return *driver;
    // Goes on with oci, so that the rest of the request is judged as well.
    draft.deny({.denial_class = DenialClass::backend_unavailable,
                .reason = "no-default-driver",
                .key = "isolation",
                .requirement = setting("isolation", "sandbox"),
                .fact = draft.describe(name::kDefaultDriver),
                .mend = std::string(facts::mend(name::kDefaultDriver)),
                .source = {}});
    return Driver::oci;
}

void refuse_weaker_pin(Draft& draft, Driver driver)
{
    const Isolation asked = draft.profile().isolation;
    // Emulation in place of hardware is the operator's word, given in config.toml for all profiles.
    if (driver == Driver::microvm) return;
    // A pin may be stronger than what is asked, never weaker.
    if (class_of(draft, driver) >= least_for(asked)) return;
    draft.deny({.denial_class = DenialClass::invalid_profile,
                .reason = "driver-weaker-than-isolation",
                .key = "driver",
                .requirement = setting("isolation", to_string(asked)),
                .fact = "driver " + std::string(to_string(driver)) + " gives " +
                        std::string(to_string(class_of(draft, driver))),
                .mend = "remove the driver, or set isolation = \"sandbox\" to accept a shared "
                        "kernel",
                .source = {}});
}

void pin_artifact(Draft& draft, std::string_view fact, std::string_view artifact,
                  std::string_view reason)
{
    // The digest in the plan is the one that is launched: what was hashed here is what the shim
    // seals.
    if (!draft.require(fact, reason, "driver", "the driver oci is complete",
                       DenialClass::backend_unavailable)) {
        return;
    }
    draft.plan.artifacts[std::string(artifact)] = draft.value_of(fact);
}

void require_oci(Draft& draft)
{
    // In the order in which a person would mend them.
    constexpr auto kUnavailable = DenialClass::backend_unavailable;
    const std::string_view driver = "driver = \"oci\"";
    draft.require(name::kDriverOci, "oci-not-available", "driver", driver, kUnavailable);
    if (draft.require(name::kPrivilege, "root-required", "driver", driver, kUnavailable) &&
        draft.value_of(name::kPrivilege) != "root") {
        draft.deny({.denial_class = kUnavailable,
                    .reason = "root-required",
                    .key = "driver",
                    .requirement = std::string(driver),
                    .fact = draft.describe(name::kPrivilege),
                    .mend = std::string(facts::mend(name::kPrivilege)),
                    .source = {}});
    }
    draft.require(name::kOciRuntimePath, "oci-runtime-missing", "driver", driver, kUnavailable);
    // Certified: tested with this release. Another version may treat a config differently, and the
    // plan's controls would be a guess.
    draft.require(name::kOciRuntimeVersion, "oci-runtime-uncertified", "driver", driver,
                  kUnavailable);
    pin_artifact(draft, name::kOciRuntimeDigest, "oci.runtime", "oci-runtime-unreadable");
    pin_artifact(draft, name::kInitDigest, "sandbox-init", "sandbox-init-missing");
    pin_artifact(draft, name::kShimDigest, "sandbox-shim", "sandbox-shim-missing");
    // A class of its own: the artifact is there, but it is not the one that was vouched for.
    draft.require(name::kOciRuntimePinned, "artifact-pin-mismatch", "driver",
                  "the runtime is the pinned one", DenialClass::backend_artifact_mismatch);
    draft.require(name::kOciFdPassing, "oci-runtime-drops-descriptors", "driver", driver,
                  kUnavailable);
    draft.require(name::kOciHybridCover, "hybrid-cgroups-not-covered", "driver", driver,
                  kUnavailable);
    draft.require(name::kMemfdSeal, "sealed-execution-unavailable", "driver",
                  "the runtime is executed from sealed, hashed memory");
    draft.require(name::kPidfd, "pidfd-unavailable", "driver",
                  "processes are known by identity, not by number");
}

}  // namespace

void resolve_driver(Draft& draft)
{
    // Before every other step: what is available depends on it.
    const Driver driver = chosen(draft);
    draft.plan.driver = driver;
    draft.plan.isolation_class = class_of(draft, driver);
    refuse_weaker_pin(draft, driver);
    switch (driver) {
    case Driver::oci: require_oci(draft); return;
    case Driver::microvm: require_microvm(draft); return;
    case Driver::native: require_native(draft); return;
    }
}

}  // namespace sandbox::resolve
