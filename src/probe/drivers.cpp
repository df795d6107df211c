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

const facts::Fact& fact_of(const Facts& facts, std::string_view fact)
{
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

Finding judge_microvm(const ProbeSettings& settings, const Facts& facts)
{
    std::string why = is_configured(settings, "microvm")
                          ? "not built in this release"
                          : "not configured, and not built in this release";
    const facts::Fact& kvm = fact_of(facts, name::kKvm);
    if (kvm.status != facts::FactStatus::ok) why += "; kvm.guest: " + kvm.evidence;
    return missing(why);
}

void put(Facts& facts, std::string_view fact, const Finding& finding)
{
    facts.insert_or_assign(std::string(fact),
                           facts::Fact{finding.status, finding.value, finding.evidence});
}

}  // namespace

void derive_drivers(const ProbeSettings& settings, Facts& facts)
{
    put(facts, name::kDriverOci, judge_oci(settings, facts));
    put(facts, name::kDriverMicrovm, judge_microvm(settings, facts));
    put(facts, name::kDriverNative,
        missing(is_configured(settings, "native")
                    ? "not built in this release"
                    : "not configured, and not built in this release"));
    put(facts, name::kDefaultDriver,
        is_configured(settings, settings.default_driver)
            ? found(settings.default_driver, "default_driver of the operator's config")
            : missing(fmt::format("default_driver {} is not among `drivers`",
                                  settings.default_driver)));
}

}  // namespace sandbox::probe
