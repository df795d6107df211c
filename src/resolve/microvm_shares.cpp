// SPDX-License-Identifier: Apache-2.0
#include "resolve/microvm_shares.hpp"

#include <algorithm>
#include <set>

#include "profile/protected.hpp"

namespace sandbox::resolve {

namespace {

// Whole components: "/srv" holds "/srv/x", not "/srvx".
const std::string* root_of(const std::vector<std::string>& roots, std::string_view source)
{
    const auto found = std::find_if(roots.begin(), roots.end(), [&](const std::string& root) {
        return profile::is_path_prefix(root, source);
    });
    return found == roots.end() ? nullptr : &*found;
}

// Of a set, those that lie in no other.
std::vector<std::string> outermost(const std::set<std::string>& paths)
{
    std::vector<std::string> out;
    for (const std::string& path : paths) {
        // Quadratic in at most as many paths as a profile may have mounts (256).
        const bool inside = std::any_of(paths.begin(), paths.end(), [&](const std::string& other) {
            return other != path && profile::is_path_prefix(other, path);
        });
        if (!inside) out.push_back(path);
    }
    return out;
}

}  // namespace

// Reason codes of denials: stable.
std::string_view to_string(ShareRefusal refusal) noexcept
{
    switch (refusal) {
    case ShareRefusal::path_in_no_share: return "path-in-no-share";
    case ShareRefusal::writable_in_read_only_share: return "writable-mount-in-read-only-share";
    case ShareRefusal::too_many_shares: return "too-many-shares";
    }
    return "path-in-no-share";
}

Shares fold_shares(const std::vector<ShareRequest>& requests, const ShareRules& rules,
                   plan::Ownership ownership)
{
    Shares out;
    // Two sets, never one: a folder that is also shared read-only must not become writable by its
    // neighbour.
    std::set<std::string> read_only;
    std::set<std::string> writable;
    for (const ShareRequest& request : requests) {
        // A store is shared as a whole, once, for all sandboxes of its images.
        const std::string* store = root_of(rules.stores, request.source);
        if (store != nullptr && !request.read_only) {
            out.refused.push_back(
                {ShareRefusal::writable_in_read_only_share, request.place, *store});
        } else if (store != nullptr) {
            read_only.insert(*store);
        } else if (!rules.roots.empty() && root_of(rules.roots, request.source) == nullptr) {
            // Without roots the operator leaves the choice to profiles.
            out.refused.push_back({ShareRefusal::path_in_no_share, request.place, {}});
        } else {
            (request.read_only ? read_only : writable).insert(request.source);
        }
    }
    for (std::string& path : outermost(read_only)) {
        out.shares.push_back({HostPath(std::move(path)), true, ownership});
    }
    for (std::string& path : outermost(writable)) {
        out.shares.push_back({HostPath(std::move(path)), false, ownership});
    }
    // Counted after folding: many mounts may need few shares.
    if (out.shares.size() > kMostShares) {
        const std::size_t place = requests.empty() ? 0 : requests.back().place;
        out.refused.push_back({ShareRefusal::too_many_shares, place, {}});
    }
    return out;
}

}  // namespace sandbox::resolve
