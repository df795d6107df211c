// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
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

// What the two files give to the caller, an ordinary user. Ids of groups may lie elsewhere than those
// of users.
struct OwnRange {
    std::uint64_t users = 0;  // first of /etc/subuid
    std::uint64_t groups = 0;  // first of /etc/subgid
    std::uint64_t count = 0;  // of both
    bool operator==(const OwnRange&) const = default;
};

// Pure: the first range of at least `least` ids in each text. Nothing: one of them has none.
std::optional<OwnRange> choose_range(std::string_view subuid, std::string_view subgid,
                                     std::uint32_t uid, std::string_view login,
                                     std::uint64_t least);

// The caller's, from the files of this host; an error names the file that gives none.
[[nodiscard]] Result<OwnRange> own_range(std::uint64_t least);

// Has newuidmap and newgidmap write the maps of `pid`, a process of ours that left our user namespace
// a moment ago: root inside is the caller, and the ids of the range keep their numbers (groups those
// of the users). Blocks until both helpers ended. Requires: single-threaded; runs in a child of its
// own, since programs are executed.
[[nodiscard]] Status map_by_helpers(int pid, const OwnRange& range);

}  // namespace sandbox::probe
