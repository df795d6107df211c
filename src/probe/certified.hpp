// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

// What we know of released versions of the tools we run. Tables, no look-ups: updated by release.
// Pure.
namespace sandbox::probe {

struct Advisory {
    std::string_view id;         // "CVE-2026-47766"
    std::string_view tool;       // "crun" | "qemu"
    std::string_view fixed_in;   // first version without it; empty: no fix known
    std::string_view last_bad;   // last version known to have it; used when fixed_in is empty
    std::string_view summary;
    std::string_view exposure;   // does it reach our use of the tool, and why (not)
};

// A runtime version that our driver was tested with: its behaviour with descriptors, hybrid
// cgroups and sealed executables is known.
bool is_certified(std::string_view tool, std::string_view version);
std::span<const std::string_view> certified_versions(std::string_view tool);

// Advisories that apply to this version, in table order.
std::vector<Advisory> advisories(std::string_view tool, std::string_view version);

// Dotted numbers compared as numbers: "1.8.1" < "1.28". Text after the digits is ignored.
int compare_versions(std::string_view a, std::string_view b);

}  // namespace sandbox::probe
