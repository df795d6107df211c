// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.hpp"

// Where a folder of this host is inside a guest. Pure.
namespace sandbox::driver::microvm {

inline constexpr std::string_view kReadOnlyTag = "ro";
inline constexpr std::string_view kWritableTag = "rw";

struct SharePlace {
    std::size_t share = 0;  // position in plan.microvm.shares, and the entry's name
    std::string path;       // below that entry; empty: the share itself
    bool operator==(const SharePlace&) const = default;
};

// The share that holds `source` with that writability and these owners; nothing when none does: a
// source in a share of another kind is in none.
std::optional<SharePlace> find_share(const std::vector<plan::SharePlan>& shares,
                                     std::string_view source, bool read_only,
                                     plan::Ownership ownership);

// "/shares/ro/3/sub/folder"
HostPath inside(const std::vector<plan::SharePlan>& shares, const SharePlace& place);

}  // namespace sandbox::driver::microvm
