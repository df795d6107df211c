// SPDX-License-Identifier: Apache-2.0
#include "supervisor/drop_ins.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <map>

#include "profile/profile.hpp"
#include "sys/file.hpp"

namespace sandbox::supervisor {

namespace {

// Like systemd's drop-ins, and for the same reason: only what is named for us is ours.
constexpr std::string_view kEnding = ".toml";
constexpr mode_t kWriteByOthers = 022;

// Empty when nobody else may change it.
std::string distrusted(const struct stat& status)
{
    if (status.st_uid != 0 && status.st_uid != geteuid()) {
        return "belongs to uid " + std::to_string(status.st_uid) +
               ", and what starts by itself must belong to root: chown root";
    }
    if ((status.st_mode & kWriteByOthers) != 0) {
        return "others than its owner may write it, and it starts by itself: chmod go-w";
    }
    return {};
}

// Nothing: masked.
std::optional<DropIn> read_one(int folder, const std::string& name, const std::string& path,
                               Trust trust)
{
    DropIn found{path, std::nullopt, {}};
    // Links are followed: the folder is the operator's. Non-blocking: a FIFO must not hang us.
    // Not by openat2 with RESOLVE flags: a link to /dev/null is a mask, and one elsewhere is legal.
    const sys::UniqueFd file(
        openat(folder, name.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    struct stat status{};
    if (!file.valid() || fstat(file.get(), &status) != 0) {
        found.problem = Error::from_errno(errno, "open", path).message();
        return found;
    }
    // makedev(1, 3) is /dev/null (kernel, admin-guide/devices.txt).
    const bool null = S_ISCHR(status.st_mode) && status.st_rdev == makedev(1, 3);
    if (null || (S_ISREG(status.st_mode) && status.st_size == 0)) return std::nullopt;
    if (!S_ISREG(status.st_mode)) {
        found.problem = "is not a regular file";
        return found;
    }
    // Judged on the open file: what was judged is what is read.
    if (trust == Trust::owner_only) found.problem = distrusted(status);
    if (!found.problem.empty()) return found;
    auto text = sys::read_all(file.get(), profile::kMostProfileBytes);
    if (text) {
        found.text = std::move(*text);
    } else {
        found.problem = text.error().message();
    }
    return found;
}

}  // namespace

bool is_drop_in_name(const std::string& name) noexcept
{
    return name.size() > kEnding.size() && name.ends_with(kEnding) && !name.starts_with('.');
}

Result<std::vector<DropIn>> read_drop_ins(const std::vector<std::string>& folders, Trust trust)
{
    std::map<std::string, std::optional<DropIn>> by_name;
    for (const std::string& path : folders) {
        const auto folder = sys::open_dir(path);
        if (!folder) {
            if (folder.error().code() == Code::not_found) continue;
            return fail(folder.error());
        }
        struct stat status{};
        if (fstat(folder->get(), &status) != 0) return fail_errno("fstat", path);
        if (const auto problem = distrusted(status);
            trust == Trust::owner_only && !problem.empty()) {
            return fail(Code::denied, path + ": " + problem);
        }
        for (const std::string& name : TRY(sys::list_dir(folder->get()))) {
            // The first folder to have the name wins, also when it is there to mask it.
            if (!is_drop_in_name(name) || by_name.contains(name)) continue;
            // What is wrong with one file is its own problem, and does not hide the others.
            by_name.emplace(name, read_one(folder->get(), name, path + "/" + name, trust));
        }
    }
    std::vector<DropIn> files;
    for (auto& [name, file] : by_name) {
        if (file) files.push_back(std::move(*file));
    }
    return files;
}

std::vector<std::string> profile_folders(const Paths& paths)
{
    return {paths.profiles, paths.vendor_profiles};
}

}  // namespace sandbox::supervisor
