// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>

#include "sys/file.hpp"

namespace sandbox::sys {

namespace {

// A tree that an untrusted workload filled may be deep: descriptors and stack are bounded.
constexpr int kMaxDepth = 512;

struct CloseDir {
    void operator()(DIR* dir) const noexcept { ::closedir(dir); }
};
using DirStream = std::unique_ptr<DIR, CloseDir>;

Result<DirStream> stream_of(int dir_fd)
{
    // A descriptor of its own, since closedir() closes it and the offset must start at 0.
    UniqueFd copy = TRY(open_at(dir_fd, ".", O_RDONLY | O_DIRECTORY));
    DirStream stream(::fdopendir(copy.get()));
    if (!stream) return fail_errno("fdopendir");
    (void)copy.release();
    return stream;
}

Result<std::uint64_t> mount_of(int fd)
{
    // STATX_MNT_ID: Linux 5.8, statx(2).
    struct statx info{};
    if (::statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &info) != 0) return fail_errno("statx");
    return info.stx_mnt_id;
}

Status remove_below(int dir, std::uint64_t mount, int depth);

Status remove_entry(int dir, const std::string& name, std::uint64_t mount, int depth)
{
    // Tried as a file first: a stat before would only be a guess by the time of the unlink.
    if (::unlinkat(dir, name.c_str(), 0) == 0 || errno == ENOENT) return {};
    // EISDIR is Linux' answer for folders, EPERM what POSIX names.
    if (errno != EISDIR && errno != EPERM) return fail_errno("unlinkat", name);
    if (::unlinkat(dir, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return {};
    if (errno != ENOTEMPTY && errno != EEXIST) return fail_errno("rmdir", name);
    // O_NOFOLLOW: a link put in its place meanwhile is removed by the next try, never followed.
    const UniqueFd below = TRY(open_at(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    // By mount id: a bind mount is of the same device, so st_dev would not tell.
    if (TRY(mount_of(below.get())) != mount)
        return fail(Code::conflict, name + " is a mount point: unmount it first");
    TRY_VOID(remove_below(below.get(), mount, depth + 1));
    if (::unlinkat(dir, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return {};
    return fail_errno("rmdir", name);
}

Status remove_below(int dir, std::uint64_t mount, int depth)
{
    if (depth > kMaxDepth)
        return fail(Code::resource_exhausted, "a folder tree is more than 512 levels deep");
    // A bound on names held in memory; a folder with more is left, and the error says so.
    for (const std::string& name : TRY(list_dir(dir, 1U << 20)))
        TRY_VOID(remove_entry(dir, name, mount, depth));
    return {};
}

}  // namespace

Result<std::vector<std::string>> list_dir(int dir_fd, std::size_t limit)
{
    const DirStream stream = TRY(stream_of(dir_fd));
    std::vector<std::string> names;
    for (;;) {
        // readdir(3) tells an error from the end by errno alone.
        errno = 0;
        const dirent* entry = ::readdir(stream.get());
        if (entry == nullptr) break;
        const std::string_view name = entry->d_name;
        if (name == "." || name == "..") continue;
        if (names.size() == limit)
            return fail(Code::resource_exhausted,
                        "a folder holds more than " + std::to_string(limit) + " entries");
        names.emplace_back(name);
    }
    if (errno != 0) return fail_errno("readdir");
    // Sorted: the kernel's order is by hash, and what depends on it would differ from run to run.
    std::sort(names.begin(), names.end());
    return names;
}

Result<std::vector<int>> open_numbers(int proc_fd_dir, std::size_t limit)
{
    // The descriptor is kept open by the caller, and its position is where the last call ended.
    if (::lseek(proc_fd_dir, 0, SEEK_SET) != 0) return fail_errno("lseek", "/proc/self/fd");
    alignas(dirent64) char buffer[4096];
    std::vector<int> numbers;
    for (;;) {
        const ssize_t got = ::getdents64(proc_fd_dir, buffer, sizeof buffer);
        if (got < 0) return fail_errno("getdents64", "/proc/self/fd");
        if (got == 0) break;
        for (ssize_t at = 0; at < got;) {
            const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
            at += entry->d_reclen;
            const std::string_view name = entry->d_name;
            int number = 0;
            const auto parsed = std::from_chars(name.data(), name.data() + name.size(), number);
            if (parsed.ec != std::errc{}) continue;  // "." and ".."
            if (numbers.size() == limit)
                return fail(Code::resource_exhausted, "too many open descriptors to list");
            numbers.push_back(number);
        }
    }
    std::sort(numbers.begin(), numbers.end());
    return numbers;
}

Status remove_tree_at(int dir, const std::string& path)
{
    // O_PATH: nothing is opened for reading, so even a folder without permissions can be removed by
    // root.
    auto root = open_at(dir, path, O_PATH | O_NOFOLLOW);
    if (!root) {
        if (root.error().errnum() == ENOENT) return {};
        return std::unexpected(std::move(root).error());
    }
    const std::uint64_t mount = TRY(mount_of(root->get()));
    auto removed = remove_entry(dir, path, mount, 0);
    if (!removed) return std::unexpected(std::move(removed).error().with("remove " + path));
    return {};
}

}  // namespace sandbox::sys
