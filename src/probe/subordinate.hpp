// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "probe/child.hpp"

// Ids that /etc/subuid and /etc/subgid give to users (subuid(5)): none of them may lie in our
// ranges, and an ordinary user has no others to give. What a name service hands out is not seen.
namespace sandbox::probe {

struct SubordinateRange {
    std::string owner;  // login name or number
    std::uint64_t base = 0;
    std::uint64_t count = 0;
};

// OWNER:BASE:COUNT lines; others are skipped, as newuidmap does.
std::vector<SubordinateRange> parse_subordinate(std::string_view text);

// Names the range of some user that meets [base, base + count); empty when none does.
std::string subordinate_overlap(std::uint64_t base, std::uint64_t count);

// As an ordinary user: has newuidmap and newgidmap map a whole range of `count` ids of the caller's
// own into the user namespace of `pid`. Success is "BASE:COUNT"; an error says what is missing.
// Requires: runs in a disposable child; `pid` is a child of ours without maps.
[[nodiscard]] Result<std::string> map_by_helpers(int pid, std::uint64_t count);

}  // namespace sandbox::probe
