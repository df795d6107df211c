// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "plan/plan.hpp"

// Which folders of this host a guest can reach. Pure.
namespace sandbox::resolve {

// QEMU's and the guest's side both name a share by a small number; seed and design bound them.
inline constexpr std::size_t kMostShares = 32;

struct ShareRequest {
    std::string source;  // normal absolute path
    bool read_only = true;
    std::size_t place = 0;  // the caller's own number of it, for refusals
};

enum class ShareRefusal { path_in_no_share, writable_in_read_only_share, too_many_shares };
std::string_view to_string(ShareRefusal refusal) noexcept;  // the denial's reason, kebab-case

struct RefusedShare {
    ShareRefusal refusal = ShareRefusal::path_in_no_share;
    std::size_t place = 0;  // of the request that failed
    std::string root;       // the read-only share it lies in; empty elsewhere
    bool operator==(const RefusedShare&) const = default;
};

struct ShareRules {
    std::vector<std::string> stores;  // read-only: every request below one is met by it as a whole
    std::vector<std::string> roots;  // empty: a source may lie anywhere
};

struct Shares {
    std::vector<plan::SharePlan> shares;  // read-only before writable, each by path
    std::vector<RefusedShare> refused;  // by place
};

// A source inside another of the same writability needs no share of its own. A writable source in
// a read-only share keeps its own: writability is never merged.
Shares fold_shares(const std::vector<ShareRequest>& requests, const ShareRules& rules,
                   plan::Ownership ownership);

}  // namespace sandbox::resolve
