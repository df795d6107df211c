// SPDX-License-Identifier: Apache-2.0
#include "probe/certified.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace sandbox::probe {

namespace {

// Debian 12 ships 1.8.1 (1.8.1-1+deb12u1): the version every test of ours runs with.
// Exact versions: a patch release may change what the driver relies on.
constexpr std::array<std::string_view, 1> kCertifiedCrun{"1.8.1"};

// Debian 12's QEMU (1:7.2+dfsg-7+deb12u18): boots our guests under TCG and nested SVM.
constexpr std::array<std::string_view, 1> kCertifiedQemu{"7.2.22"};

constexpr std::array<Advisory, 4> kAdvisories{{
    // Sources: the vendors' advisories as of 2026-09-11. `exposure` is our own judgement, and holds
    // while the driver mounts a fresh /dev (a test of the driver looks for it).
    {"CVE-2026-47766", "crun", "1.28", "",
     "a /dev entry that the image's author controls misleads the runtime's set-up",
     "not reached: every sandbox gets a fresh /dev of its own, never the image's"},
    {"CVE-2026-88264", "crun", "", "1.29.1",
     "a /dev entry that the image's author controls misleads the runtime's set-up",
     "not reached: configurations with a dedicated /dev mount, as ours, are not exposed"},
    {"CVE-2026-88265", "crun", "", "1.29.1",
     "a /dev entry that the image's author controls misleads the runtime's set-up",
     "not reached: configurations with a dedicated /dev mount, as ours, are not exposed"},
    {"qemu-7.2-series", "qemu", "", "7.2.22",
     "the 7.2 series is a distribution branch: known device flaws have been chained with fixes "
     "that were never classed as security",
     "reached only after a guest has taken over the VMM: the VMM is confined as if already lost"},
}};

std::span<const std::string_view> versions_of(std::string_view tool)
{
    if (tool == "crun") return kCertifiedCrun;
    if (tool == "qemu") return kCertifiedQemu;
    return {};
}

// Takes the number at the front and one dot after it; 0 when there is none.
std::uint64_t take_part(std::string_view& text)
{
    std::uint64_t value = 0;
    // Saturates instead of wrapping: a version of twenty digits is larger than any of ours.
    while (!text.empty() && text.front() >= '0' && text.front() <= '9') {
        if (value < UINT64_MAX / 16)
            value = value * 10 + static_cast<std::uint64_t>(text.front() - '0');
        text.remove_prefix(1);
    }
    if (!text.empty() && text.front() == '.') {
        text.remove_prefix(1);
    } else {
        text = {};  // a suffix ("rc1", "-dev") carries no order that we need
    }
    return value;
}

bool applies(const Advisory& advisory, std::string_view version)
{
    // An unknown version has every advisory: nothing says that it does not.
    if (version.empty()) return true;
    if (!advisory.fixed_in.empty()) return compare_versions(version, advisory.fixed_in) < 0;
    return compare_versions(version, advisory.last_bad) <= 0;
}

}  // namespace

int compare_versions(std::string_view a, std::string_view b)
{
    while (!a.empty() || !b.empty()) {
        const std::uint64_t left = take_part(a);
        const std::uint64_t right = take_part(b);
        if (left != right) return left < right ? -1 : 1;
    }
    return 0;
}

bool is_certified(std::string_view tool, std::string_view version)
{
    return std::ranges::find(versions_of(tool), version) != versions_of(tool).end();
}

std::span<const std::string_view> certified_versions(std::string_view tool)
{
    return versions_of(tool);
}

std::vector<Advisory> advisories(std::string_view tool, std::string_view version)
{
    std::vector<Advisory> found;
    for (const Advisory& advisory : kAdvisories) {
        if (advisory.tool == tool && applies(advisory, version)) found.push_back(advisory);
    }
    return found;
}

}  // namespace sandbox::probe
