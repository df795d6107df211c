// SPDX-License-Identifier: Apache-2.0
#include "driver/placeholder.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/diagnostic.hpp"
#include "sys/file.hpp"

namespace sandbox::driver {
namespace {

struct Place {
    sys::UniqueFd folder;
    std::string name;
};

// The folder of a placeholder, by descriptor, no magic link followed.
Result<Place> place_of(const HostPath& path)
{
    const auto slash = path.str().rfind('/');
    if (slash == std::string::npos || slash + 1 == path.str().size())
        return fail(Code::invalid_argument, "not a path of a file: " + escaped(path.str()));
    const std::string folder = slash == 0 ? "/" : path.str().substr(0, slash);
    return Place{
        TRY_WITH(sys::open_at2(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY, 0, RESOLVE_NO_MAGICLINKS),
                 "folder of masked path " + escaped(path.str())),
        path.str().substr(slash + 1)};
}

}  // namespace

Result<std::vector<Placeholder>> list_placeholders(std::span<const TreeStep> steps)
{
    std::vector<Placeholder> missing;
    for (const TreeStep& step : steps) {
        const auto* mask = std::get_if<MaskPath>(&step);
        if (mask == nullptr || mask->ground != Ground::operators || mask->host.empty()) continue;
        const Place place = TRY(place_of(mask->host));
        struct stat status{};
        if (::fstatat(place.folder.get(), place.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0)
            continue;
        if (errno != ENOENT) return fail_errno("fstatat", mask->host.str());
        // Without links: it is found again by this name, wherever they point by then.
        const auto folder = sys::readlink_at(AT_FDCWD, sys::fd_path(place.folder.get()));
        if (!folder) return fail(folder.error());
        missing.push_back({HostPath((*folder == "/" ? "" : *folder) + "/" + place.name)});
    }
    return missing;
}

}  // namespace sandbox::driver
