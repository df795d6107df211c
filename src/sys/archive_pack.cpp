// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string_view>

#include "sys/archive.hpp"
#include "sys/file.hpp"

namespace sandbox::sys {

const std::uint64_t kInRoot = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;

namespace {

constexpr std::size_t kPackBuffer = 128U << 10;
// For a person to see what kind it was, not for a list.
constexpr std::size_t kMostSkippedNames = 8;
// Never waits for a FIFO's writer nor takes a terminal.
constexpr int kReadFlags = O_RDONLY | O_NONBLOCK | O_NOCTTY;

struct CloseArchiveDir {
    void operator()(DIR* dir) const noexcept { ::closedir(dir); }
};
using FolderStream = std::unique_ptr<DIR, CloseArchiveDir>;

std::string last_component(std::string_view path)
{
    while (path.ends_with('/')) path.remove_suffix(1);
    const std::size_t slash = path.rfind('/');
    const std::string_view last = slash == std::string_view::npos ? path : path.substr(slash + 1);
    // ".." has no name that could be given to the copy: its content is copied instead.
    return last.empty() || last == ".." ? "." : std::string(last);
}

class Packer {
public:
    Packer(int out, const tar::Limits& limits) : out_(out), limits_(limits), buffer_(kPackBuffer) {}

    Status folder(UniqueFd dir, const std::string& name, std::size_t depth)
    {
        struct stat info{};
        if (::fstat(dir.get(), &info) != 0) return fail_errno("fstat", name);
        TRY_VOID(begin(tar::Kind::directory, name, info, {}));
        // Each level holds a descriptor and a stack frame: the depth is the bound for both.
        if (depth >= limits_.depth)
            return fail(Code::resource_exhausted, "nested too deep: " + name);
        const FolderStream stream(::fdopendir(dir.get()));
        if (!stream) return fail_errno("fdopendir", name);
        // fdopendir(3) owns it now; closedir closes it.
        (void)dir.release();
        // Read as it goes: a folder of a million names costs one buffer.
        for (errno = 0; const dirent* entry = ::readdir(stream.get()); errno = 0) {
            const std::string_view leaf = entry->d_name;
            if (leaf == "." || leaf == "..") continue;
            TRY_VOID(child(::dirfd(stream.get()), std::string(leaf), name, depth));
        }
        if (errno != 0) return fail_errno("getdents64", name);
        return {};
    }

    Status file(int fd, const std::string& name, const struct stat& info)
    {
        TRY_VOID(begin(tar::Kind::file, name, info, {}));
        // The size of the header counts, not what comes meanwhile: a file that grows is cut there.
        auto left = static_cast<std::uint64_t>(info.st_size);
        while (left > 0) {
            const auto wanted = static_cast<std::size_t>(
                std::min<std::uint64_t>(left, buffer_.size()));
            const ssize_t count = ::read(fd, buffer_.data(), wanted);
            if (count < 0 && errno == EINTR) continue;
            if (count < 0) return fail_errno("read", name);
            // Cut while we read: the header is out, so zeros stand for what is gone.
            const std::size_t got = count == 0 ? wanted : static_cast<std::size_t>(count);
            if (count == 0) std::fill_n(buffer_.begin(), got, '\0');
            TRY_VOID(write_all(out_, {buffer_.data(), got}));
            left -= got;
        }
        return write_all(
            out_, std::string(tar::padding_of(static_cast<std::uint64_t>(info.st_size)), '\0'));
    }

    Packed finish() && { return std::move(packed_); }

private:
    Status begin(tar::Kind kind, const std::string& name, const struct stat& info,
                 std::string target)
    {
        tar::Entry entry;
        entry.kind = kind;
        entry.name = name;
        entry.target = std::move(target);
        // No set-id and no sticky bit: they would mean something else to another owner.
        entry.mode = info.st_mode & 0777;
        entry.uid = info.st_uid;
        entry.gid = info.st_gid;
        entry.mtime = info.st_mtim.tv_sec;
        entry.size = kind == tar::Kind::file ? static_cast<std::uint64_t>(info.st_size) : 0;
        if (name.size() > tar::kMostName || entry.target.size() > tar::kMostName)
            return fail(Code::resource_exhausted, "a path longer than 4095 bytes below " +
                                                      name.substr(0, tar::kMostComponent));
        TRY_VOID(packed_.tally.add(entry, limits_));
        return write_all(out_, tar::header_of(entry));
    }

    Status child(int dir, const std::string& leaf, const std::string& parent, std::size_t depth)
    {
        // Names begin at the source's own: no path of the host is in the archive.
        const std::string name = parent == "." ? leaf : parent + "/" + leaf;
        struct stat info{};
        // Gone since readdir: a copy of a living tree cannot be of one moment.
        if (::fstatat(dir, leaf.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
            return errno == ENOENT ? Status{} : fail_errno("stat", name);
        if (S_ISLNK(info.st_mode)) {
            auto target = readlink_at(dir, leaf);
            // Removed, or made something else of, since we looked.
            if (!target && target.error().errnum() == ENOENT) return {};
            if (!target && target.error().errnum() == EINVAL) return skip(name);
            if (!target) return fail(target.error());
            return begin(tar::Kind::symlink, name, info, std::move(*target));
        }
        if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode)) return skip(name);
        // O_NOFOLLOW closes the race of the stat above: what is a link by now is skipped, not
        // followed.
        auto opened = open_at(dir, leaf, kReadFlags | O_NOFOLLOW);
        if (!opened && (opened.error().errnum() == ENOENT || opened.error().errnum() == ELOOP))
            return skip(name);
        if (!opened) return fail(opened.error().with(name));
        // Asked again of the descriptor: only its answer can be relied on.
        if (::fstat(opened->get(), &info) != 0) return fail_errno("fstat", name);
        if (S_ISDIR(info.st_mode)) return folder(std::move(*opened), name, depth + 1);
        if (S_ISREG(info.st_mode)) return file(opened->get(), name, info);
        return skip(name);
    }

    Status skip(const std::string& name)
    {
        if (packed_.skipped.size() < kMostSkippedNames) packed_.skipped.push_back(name);
        return {};
    }

    int out_;
    const tar::Limits& limits_;
    std::vector<char> buffer_;
    Packed packed_;
};

}  // namespace

Result<ArchiveSource> open_archive_source(const ArchiveRoot& root, const std::string& path)
{
    ArchiveSource source;
    source.file = TRY(open_at2(root.dir, path, kReadFlags, 0, root.resolve));
    struct stat info{};
    if (::fstat(source.file.get(), &info) != 0) return fail_errno("fstat", path);
    source.folder = S_ISDIR(info.st_mode);
    source.name = last_component(path);
    if (!source.folder && !S_ISREG(info.st_mode))
        return fail(Code::invalid_argument, path + " is neither a file nor a folder");
    return source;
}

Result<Packed> pack_archive(const ArchiveSource& source, int out, const tar::Limits& limits)
{
    Packer packer(out, limits);
    if (source.folder) {
        // A descriptor of its own: the walk closes what it reads.
        // Rather than a duplicate, which would share the read position of the folder.
        UniqueFd folder = TRY(open_at(source.file.get(), ".", O_RDONLY | O_DIRECTORY));
        TRY_VOID(packer.folder(std::move(folder), source.name, source.name == "." ? 0 : 1));
    } else {
        struct stat info{};
        if (::fstat(source.file.get(), &info) != 0) return fail_errno("fstat", source.name);
        TRY_VOID(packer.file(source.file.get(), source.name, info));
    }
    TRY_VOID(write_all(out, tar::end_of_archive()));
    return std::move(packer).finish();
}

}  // namespace sandbox::sys
