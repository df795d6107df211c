// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "probe/certified.hpp"
#include "probe/tasks.hpp"

namespace sandbox::probe {

namespace {

namespace name = facts::name;
using Facts = std::map<std::string, facts::Fact>;

// A fact by its name; nothing is touched here.
const facts::Fact& fact_of(const Facts& facts, std::string_view fact)
{
    // A fact that is not there is a gap, never an oversight.
    static const facts::Fact kUnknown{facts::FactStatus::gap, {}, "not probed"};
    const auto entry = facts.find(std::string(fact));
    return entry == facts.end() ? kUnknown : entry->second;
}

bool is_configured(const ProbeSettings& settings, std::string_view driver)
{
    return std::ranges::find(settings.drivers, driver) != settings.drivers.end();
}

Finding not_configured(std::string_view driver)
{
    return missing(fmt::format("{} is not among `drivers` in config.toml", driver));
}

Finding judge_oci(const ProbeSettings& settings, const Facts& facts)
{
    if (!is_configured(settings, "oci")) return not_configured("oci");
    // All of them: a driver that starts and then fails is worse than one that is refused.
    constexpr std::array<std::string_view, 6> kNeeded{
        name::kOciRuntimePath, name::kOciRuntimeVersion, name::kOciRuntimePinned,
        name::kOciFdPassing,   name::kInitDigest,        name::kShimDigest};
    std::vector<std::string> gaps;
    for (const std::string_view needed : kNeeded) {
        const facts::Fact& fact = fact_of(facts, needed);
        if (fact.status != facts::FactStatus::ok) {
            gaps.push_back(fmt::format("{}: {}", needed, fact.evidence));
        }
    }
    // A pin says which file the operator wants, not that we know how it behaves.
    const facts::Fact& version = fact_of(facts, name::kOciRuntimeVersion);
    if (version.status == facts::FactStatus::ok && !is_certified("crun", version.value)) {
        gaps.push_back(fmt::format("crun {} is not certified (certified: {})", version.value,
                                   fmt::join(certified_versions("crun"), ", ")));
    }
    if (!gaps.empty()) return missing(fmt::format("{}", fmt::join(gaps, "; ")));
    return found("yes",
                 fmt::format("crun {} is certified; runtime, init and shim found", version.value));
}

// Nothing but our own programs and the kernel, whose parts are facts of their own.
Finding judge_native(const ProbeSettings& settings, const Facts& facts)
{
    if (!is_configured(settings, "native")) return not_configured("native");
    std::vector<std::string> gaps;
    for (const std::string_view needed : {name::kInitDigest, name::kShimDigest, name::kMemfdSeal}) {
        const facts::Fact& fact = fact_of(facts, needed);
        if (fact.status != facts::FactStatus::ok)
            gaps.push_back(fmt::format("{}: {}", needed, fact.evidence));
    }
    const bool user = fact_of(facts, name::kPrivilege).value == "user";
    // Without root all of it happens in a user namespace whose ids two helpers map, and in cgroups
    // that somebody gave away.
    constexpr std::array<std::string_view, 4> kOfUsers{name::kUserNamespace, name::kNewuidmap,
                                                       name::kSubordinateIds, name::kCgroupParent};
    for (const std::string_view needed : kOfUsers) {
        const facts::Fact& fact = fact_of(facts, needed);
        if (user && fact.status != facts::FactStatus::ok)
            gaps.push_back(fmt::format("{}: {}", needed, fact.evidence));
    }
    if (!gaps.empty()) return missing(fmt::format("{}", fmt::join(gaps, "; ")));
    const bool pinned = settings.init.pin && settings.shim.pin;
    return found(pinned ? "config" : "default",
                 user ? "init and shim found; ids and cgroups of this user's own"
                      : "init and shim found; the kernel gives the rest");
}

// What this host would execute guests with, if it can.
Finding judge_accelerator(const ProbeSettings& settings, const Facts& facts)
{
    if (settings.accelerator == "tcg") {
        if (settings.accept_emulated) {
            return found("tcg", "accelerator and accept_emulated of the operator's config");
        }
        return missing("accelerator is tcg, and accept_emulated is not true in config.toml");
    }
    const facts::Fact& kvm = fact_of(facts, name::kKvm);
    if (kvm.status == facts::FactStatus::ok) return found("kvm", "kvm.guest: " + kvm.evidence);
    return missing("accelerator is kvm, and kvm.guest: " + kvm.evidence);
}

// A guest is what its kernel and first program are: without pins it would be whatever lies there.
Finding judge_pins(const ProbeSettings& settings)
{
    if (!settings.guest_kernel.pin || !settings.guest_initrd.pin) {
        return missing("artifacts.kernel and artifacts.initrd are not both pinned in config.toml");
    }
    const bool all = settings.vmm.pin && settings.virtiofsd.pin;
    return found(all ? "config" : "default", "pins of qemu, virtiofsd, kernel and initrd");
}

std::string joined(const std::vector<std::string>& paths)
{
    return fmt::format("{}", fmt::join(paths, ":"));
}

void set_fact(Facts& facts, std::string_view fact, const Finding& finding)
{
    facts.insert_or_assign(std::string(fact),
                           facts::Fact{finding.status, finding.value, finding.evidence});
}

// What the operator says of guests: the resolver sees a host through its facts alone.
void put_guests(const ProbeSettings& settings, Facts& facts)
{
    constexpr const char* kSaid = "[microvm] of the operator's config";
    const std::string cpus = settings.guest_cpus ? std::to_string(*settings.guest_cpus) : "";
    const std::string memory = settings.guest_memory ? std::to_string(*settings.guest_memory) : "";
    set_fact(facts, name::kGuestCpus, noted(cpus, kSaid));
    set_fact(facts, name::kGuestMemory, noted(memory, kSaid));
    set_fact(facts, name::kGuestStores, noted(joined(settings.guest_stores), kSaid));
    set_fact(facts, name::kGuestShares, noted(joined(settings.guest_shares), kSaid));
    const auto& pin = settings.guest_kernel.pin;
    set_fact(facts, name::kGuestRelease,
             noted(pin ? pin->version : "", "version of artifacts.kernel in config.toml"));
    set_fact(facts, name::kAccelerator, judge_accelerator(settings, facts));
    set_fact(facts, name::kVmmPinned, judge_pins(settings));
}

}  // namespace

Finding judge_microvm(const ProbeSettings& settings, const Facts& facts)
{
    if (!is_configured(settings, "microvm")) return not_configured("microvm");
    constexpr std::array<std::string_view, 10> kNeeded{
        name::kAccelerator,     name::kVmmPath,     name::kVmmDigest,   name::kVmmVersion,
        name::kVirtiofsdDigest, name::kGuestKernel, name::kGuestInitrd, name::kVmmPinned,
        name::kInitDigest,      name::kShimDigest};
    std::vector<std::string> gaps;
    for (const std::string_view needed : kNeeded) {
        const facts::Fact& fact = fact_of(facts, needed);
        if (fact.status != facts::FactStatus::ok) {
            gaps.push_back(fmt::format("{}: {}", needed, fact.evidence));
        }
    }
    const facts::Fact& version = fact_of(facts, name::kVmmVersion);
    if (version.status == facts::FactStatus::ok && !is_certified("qemu", version.value)) {
        gaps.push_back(fmt::format("qemu {} is not certified (certified: {})", version.value,
                                   fmt::join(certified_versions("qemu"), ", ")));
    }
    if (!gaps.empty()) return missing(fmt::format("{}", fmt::join(gaps, "; ")));
    return found("yes",
                 fmt::format("qemu {} is certified; virtiofsd, guest kernel and initrd found",
                             version.value));
}

// After all checks: it reads what they have found.
void derive_drivers(const ProbeSettings& settings, Facts& facts)
{
    put_guests(settings, facts);
    set_fact(facts, name::kDriverOci, judge_oci(settings, facts));
    set_fact(facts, name::kDriverMicrovm, judge_microvm(settings, facts));
    set_fact(facts, name::kDriverNative, judge_native(settings, facts));
    // Also this: a default that names no driver must not be found out at the launch.
    set_fact(facts, name::kDefaultDriver,
             is_configured(settings, settings.default_driver)
                 ? found(settings.default_driver, "default_driver of the operator's config")
                 : missing(fmt::format("default_driver {} is not among `drivers`",
                                       settings.default_driver)));
}

}  // namespace sandbox::probe
