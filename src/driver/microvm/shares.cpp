// SPDX-License-Identifier: Apache-2.0
#include "driver/microvm/shares.hpp"

#include "driver/microvm/compile.hpp"
#include "profile/protected.hpp"

namespace sandbox::driver::microvm {

std::optional<SharePlace> find_share(const std::vector<plan::SharePlan>& shares,
                                     std::string_view source, bool read_only,
                                     plan::Ownership ownership)
{
    for (std::size_t i = 0; i < shares.size(); ++i) {
        const plan::SharePlan& share = shares[i];
        const std::string& root = share.source.str();
        if (share.read_only != read_only || share.ownership != ownership ||
            !profile::is_path_prefix(root, source)) {
            continue;
        }
        const std::string_view rest = source.substr(root.size());
        return SharePlace{i, std::string(rest.starts_with('/') ? rest.substr(1) : rest)};
    }
    return std::nullopt;
}

HostPath inside(const std::vector<plan::SharePlan>& shares, const SharePlace& place)
{
    std::string path(kSharesRoot);
    path += '/';
    path += shares[place.share].read_only ? kReadOnlyTag : kWritableTag;
    path += "/" + std::to_string(place.share);
    if (!place.path.empty()) path += "/" + place.path;
    return HostPath(std::move(path));
}

}  // namespace sandbox::driver::microvm
