// SPDX-License-Identifier: Apache-2.0
#include "driver/resources_paths.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "sys/file.hpp"

namespace sandbox::driver {

namespace {

using ledger::Entry;

// Only a process with CAP_SYS_ADMIN in the first user namespace can set or see it (xattr(7)): no
// workload can forge the mark of a placeholder.
constexpr const char* kMark = "trusted.sandbox";

struct Split {
    std::string folder;
    std::string leaf;
};

Split split(const std::string& path)
{
    const auto at = path.rfind('/');
    if (at == std::string::npos) return {".", path};
    return {at == 0 ? "/" : path.substr(0, at), path.substr(at + 1)};
}

// Nothing when the folder, or one above it, does not exist.
Result<std::optional<sys::UniqueFd>> folder_of(int root, const std::string& folder,
                                               std::uint64_t resolve)
{
    auto opened = sys::open_at2(root, folder, O_RDONLY | O_DIRECTORY, 0, resolve);
    if (opened) return std::optional(*std::move(opened));
    if (opened.error().code() == Code::not_found) return std::nullopt;
    return std::unexpected(std::move(opened).error());
}

Result<std::optional<struct stat>> look(int folder, const std::string& leaf)
{
    struct stat info{};
    if (fstatat(folder, leaf.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) return info;
    if (errno == ENOENT) return std::nullopt;
    return fail_errno("fstatat", leaf);
}

bool is_empty_folder(int parent, const std::string& leaf)
{
    const auto folder = sys::open_at2(parent, leaf, O_RDONLY | O_DIRECTORY, 0, sys::kBeneath);
    if (!folder) return false;
    const auto names = sys::list_dir(folder->get());
    return names && names->empty();
}

struct Placeholder {
    sys::UniqueFd folder;
    std::string leaf;
    Presence presence = Presence::absent;
    bool is_folder = false;
};

bool carries_mark(int parent, const std::string& leaf, const SandboxId& id)
{
    const auto file = sys::open_at2(parent, leaf, O_PATH | O_NOFOLLOW, 0, sys::kBeneath);
    if (!file) return false;
    std::array<char, 64> value{};
    const ssize_t size = getxattr(sys::fd_path(file->get()).c_str(), kMark, value.data(),
                                  value.size());
    return size >= 0 && std::string_view(value.data(), static_cast<std::size_t>(size)) == id.str();
}

bool mark(int file, const SandboxId& id)
{
    return setxattr(sys::fd_path(file).c_str(), kMark, id.c_str(), id.str().size(), 0) == 0;
}

Result<Placeholder> find_placeholder(const Entry& entry)
{
    Placeholder found;
    auto [folder, leaf] = split(entry.name);
    auto parent = TRY(folder_of(AT_FDCWD, folder, sys::kNoSymlinks));
    if (!parent) return found;
    found.folder = *std::move(parent);
    found.leaf = leaf;
    const auto info = TRY(look(found.folder.get(), leaf));
    if (!info) return found;
    found.is_folder = S_ISDIR(info->st_mode);
    const bool empty = found.is_folder ? is_empty_folder(found.folder.get(), leaf)
                                       : S_ISREG(info->st_mode) && info->st_size == 0;
    bool same = false;
    if (entry.identity.empty()) {
        // Killed between making and recording it: only the mark tells it from a file of the user's.
        same = carries_mark(found.folder.get(), leaf, entry.sandbox);
    } else {
        const auto identity = TRY(ledger::decode_file(entry.identity));
        same = identity.device == info->st_dev && identity.inode == info->st_ino;
    }
    found.presence = same && empty ? Presence::present : Presence::foreign;
    return found;
}

}  // namespace

bool is_plain_absolute(std::string_view path) noexcept
{
    if (!path.starts_with('/') || path.find('\0') != std::string_view::npos) return false;
    while (!path.empty()) {
        path.remove_prefix(1);
        const auto part = path.substr(0, path.find('/'));
        if (part.empty() || part == "." || part == "..") return false;
        path.remove_prefix(part.size());
    }
    return true;
}

Result<Presence> observe_path(int root, const std::string& name)
{
    const auto [folder, leaf] = split(name);
    const auto parent = TRY(folder_of(root, folder, sys::kBeneath));
    if (!parent) return Presence::absent;
    const auto info = TRY(look(parent->get(), leaf));
    return info ? Presence::present : Presence::absent;
}

Status remove_beneath(int root, const std::string& name)
{
    const auto [folder, leaf] = split(name);
    const auto parent = TRY(folder_of(root, folder, sys::kBeneath));
    return parent ? sys::remove_tree_at(parent->get(), leaf) : Status{};
}

Status remove_socket(int root, const std::string& name)
{
    const auto [folder, leaf] = split(name);
    const auto parent = TRY(folder_of(root, folder, sys::kBeneath));
    if (!parent) return {};
    auto removed = sys::unlink_at(parent->get(), leaf);
    if (!removed && removed.error().code() == Code::not_found) return {};
    return removed;
}

Result<Presence> observe_state_dir(int root, const Entry& entry)
{
    const auto folder = TRY(folder_of(root, entry.name, sys::kBeneath));
    if (!folder) return observe_path(root, entry.name);
    const auto names = TRY(sys::list_dir(folder->get()));
    return names == std::vector<std::string>{"logs"} ? Presence::absent : Presence::present;
}

Status undo_state_dir(int root, const Entry& entry)
{
    const auto folder = TRY(folder_of(root, entry.name, sys::kBeneath));
    if (!folder) return {};
    const auto names = TRY(sys::list_dir(folder->get()));
    bool has_logs = false;
    for (const auto& name : names) {
        if (name == "logs")
            has_logs = true;
        else
            TRY_VOID(sys::remove_tree_at(folder->get(), name));
    }
    if (!has_logs) return remove_beneath(root, entry.name);
    return sys::fsync_fd(folder->get());
}

Status undo_logs(int root, const Entry& entry)
{
    TRY_VOID(remove_beneath(root, entry.name));
    // The folder around it goes too when nothing else is in it.
    const std::string around = split(entry.name).folder;
    const auto [folder, leaf] = split(around);
    const auto parent = TRY(folder_of(root, folder, sys::kBeneath));
    if (parent && is_empty_folder(parent->get(), leaf)) return sys::rmdir_at(parent->get(), leaf);
    return {};
}

Result<Presence> observe_placeholder(const Entry& entry)
{
    const auto found = TRY(find_placeholder(entry));
    return found.presence;
}

Status undo_placeholder(const Entry& entry)
{
    const auto found = TRY(find_placeholder(entry));
    if (found.presence != Presence::present) return {};
    // rmdir refuses a folder that was filled meanwhile. For a file the kernel has no such check:
    // the moment between look and unlink stays, in a folder whose owner could delete it anyway.
    return found.is_folder ? sys::rmdir_at(found.folder.get(), found.leaf)
                           : sys::unlink_at(found.folder.get(), found.leaf);
}

Result<sys::FileIdentity> make_placeholder(const SandboxId& id, const std::string& path,
                                           PlaceholderType type)
{
    if (!is_plain_absolute(path)) {
        return fail(Code::invalid_argument,
                    "mask: wanted an absolute path without \"..\", found " + path);
    }
    const auto [folder, leaf] = split(path);
    const auto parent = TRY(
        sys::open_at2(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY, 0, sys::kNoSymlinks));
    if (type == PlaceholderType::folder) {
        TRY_VOID(sys::mkdir_at(parent.get(), leaf, 0));
    } else {
        // Marked before it has a name: a crash in between leaves nothing.
        const auto nameless = sys::open_at(parent.get(), ".", O_TMPFILE | O_WRONLY, 0);
        if (nameless && mark(nameless->get(), id)) {
            if (linkat(AT_FDCWD, sys::fd_path(nameless->get()).c_str(), parent.get(), leaf.c_str(),
                       AT_SYMLINK_FOLLOW) != 0) {
                return fail_errno("linkat", path);
            }
            return sys::identity_of_fd(nameless->get());
        }
        TRY_VOID(sys::write_file_at(parent.get(), leaf, "", 0));
    }
    const auto made = TRY(sys::open_at2(parent.get(), leaf, O_PATH | O_NOFOLLOW, 0, sys::kBeneath));
    // Best effort: a file system without trusted.* attributes loses only the proof for one that was
    // never recorded, which is then reported instead of removed.
    (void)mark(made.get(), id);
    return sys::identity_of_fd(made.get());
}

}  // namespace sandbox::driver
