// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "sys/archive.hpp"
#include "sys/file.hpp"

namespace sandbox::sys {

namespace {

constexpr std::size_t kUnpackBuffer = 128U << 10;
// Ours alone until it is complete: modes of the archive are applied at the end.
constexpr mode_t kFolderWhileFilled = 0700;
constexpr mode_t kFileWhileFilled = 0600;
constexpr mode_t kImpliedFolder = 0755;  // one the archive does not name
constexpr mode_t kArchivePermissions = 0777;

// "a/b/" and "a//b": "a/" and "b"; what the caller names, not the archive.
std::pair<std::string, std::string> split_path(std::string path)
{
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return {".", path};
    return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

std::array<timespec, 2> times_of(std::int64_t mtime)
{
    return {timespec{0, UTIME_OMIT}, timespec{static_cast<time_t>(mtime), 0}};
}

class Unpacker {
public:
    Unpacker(ArchiveTarget target, std::uint64_t most_copied)
        : target_(std::move(target)), most_copied_(most_copied)
    {
    }

    Status begin(tar::Entry entry)
    {
        // An entry begins where the one before it ends.
        TRY_VOID(end_file());
        std::string name = TRY(place(entry));
        const bool first = !std::exchange(begun_, true);
        if (first && target_.wants_folder && entry.kind != tar::Kind::directory)
            return fail(Code::not_found, "the folder to copy into does not exist");
        // The folder we land in is there already, and keeps its own mode and time.
        if (name == ".") return {};
        TRY_VOID(leave_to(name));
        // Entries of one folder usually come together: the folders stay open until another is
        // named.
        const std::size_t slash = name.rfind('/');
        if (slash != std::string::npos) TRY_VOID(descend(name.substr(0, slash)));
        const std::string leaf = slash == std::string::npos ? name : name.substr(slash + 1);
        switch (entry.kind) {
        case tar::Kind::directory: return enter(name, leaf, &entry);
        case tar::Kind::symlink: return make_link(leaf, entry);
        case tar::Kind::hardlink: return copy_existing(leaf, entry);
        case tar::Kind::file: return make_file(leaf, entry);
        }
        return {};
    }

    Status data(std::span<const std::byte> bytes)
    {
        return write_all(file_.get(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }

    Status finish()
    {
        TRY_VOID(end_file());
        return leave_to("");
    }

private:
    // A folder that is being filled. What it is to look like is applied when it is left: a time
    // would not survive its filling, nor would a read-only folder be filled.
    struct Open {
        std::string name;
        UniqueFd dir;
        mode_t mode = 0;
        std::int64_t mtime = 0;
        bool made = false;
        bool has_time = false;
    };

    int here() const { return open_.empty() ? target_.folder.get() : open_.back().dir.get(); }

    // The name below the target's folder.
    Result<std::string> place(const tar::Entry& entry)
    {
        if (target_.landing == Landing::content) {
            if (target_.rename.empty()) return entry.name;
            // The folder that is to hold the content is not there yet.
            // The first entry says whether the archive brings the folder; anything else has no
            // place to go.
            if (!begun_ && (entry.kind != tar::Kind::directory || entry.name != "."))
                return fail(Code::not_found, "the folder to copy into does not exist");
            return entry.name == "." ? target_.rename : target_.rename + "/" + entry.name;
        }
        const std::string first = entry.name.substr(0, entry.name.find('/'));
        if (!begun_) tree_ = first;
        // `named` gives the tree a new name: two trees cannot both have it.
        if (first != tree_)
            return fail(Code::invalid_argument, "the archive holds more than one tree");
        if (target_.rename.empty()) return entry.name;
        if (entry.name == ".") return target_.rename;
        return target_.rename + (tree_ == "." ? "/" + entry.name : entry.name.substr(tree_.size()));
    }

    // Leaves the open folders that do not lead to `name`.
    Status leave_to(const std::string& name)
    {
        while (!open_.empty() && !name.starts_with(open_.back().name + "/")) {
            const Open last = std::move(open_.back());
            open_.pop_back();
            // One that was there before keeps its mode and time.
            if (!last.made) continue;
            if (::fchmod(last.dir.get(), last.mode) != 0) return fail_errno("fchmod", last.name);
            const auto times = times_of(last.mtime);
            if (last.has_time && ::futimens(last.dir.get(), times.data()) != 0)
                return fail_errno("utimensat", last.name);
        }
        return {};
    }

    Status descend(const std::string& folder)
    {
        std::size_t from = open_.empty() ? 0 : open_.back().name.size() + 1;
        while (from < folder.size()) {
            const std::size_t end = std::min(folder.find('/', from), folder.size());
            TRY_VOID(enter(folder.substr(0, end), folder.substr(from, end - from), nullptr));
            from = end + 1;
        }
        return {};
    }

    Status enter(const std::string& name, const std::string& leaf, const tar::Entry* entry)
    {
        Open folder;
        folder.name = name;
        // Made or there already: mkdirat does not follow a link, and the open below refuses one.
        folder.made = ::mkdirat(here(), leaf.c_str(), kFolderWhileFilled) == 0;
        if (!folder.made && errno != EEXIST) return fail_errno("mkdir", name);
        auto dir = open_at(here(), leaf, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
        // A link where the archive has a folder would lead the rest somewhere else.
        if (!dir && (dir.error().errnum() == ELOOP || dir.error().errnum() == ENOTDIR))
            return fail(Code::already_exists, name + " exists and is not a folder");
        folder.dir = TRY(std::move(dir));
        folder.mode = entry != nullptr ? entry->mode & kArchivePermissions : kImpliedFolder;
        folder.mtime = entry != nullptr ? entry->mtime : 0;
        folder.has_time = entry != nullptr;
        open_.push_back(std::move(folder));
        return {};
    }

    // Whatever has the name goes first: writing into it could reach a file linked elsewhere.
    Status clear(const std::string& leaf)
    {
        if (::unlinkat(here(), leaf.c_str(), 0) == 0 || errno == ENOENT) return {};
        if (errno == EISDIR || errno == EPERM)
            return fail(Code::already_exists, leaf + " exists and is a folder");
        return fail_errno("unlink", leaf);
    }

    Status make_file(const std::string& leaf, const tar::Entry& entry)
    {
        TRY_VOID(clear(leaf));
        // O_EXCL after clear(): if somebody put another file there meanwhile, this fails.
        file_ = TRY(
            open_at(here(), leaf, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, kFileWhileFilled));
        entry_ = entry;
        return {};
    }

    Status end_file()
    {
        if (!file_.valid()) return {};
        // By descriptor: what has the name now may not be what we wrote.
        if (::fchmod(file_.get(), entry_.mode & kArchivePermissions) != 0)
            return fail_errno("fchmod", entry_.name);
        const auto times = times_of(entry_.mtime);
        if (::futimens(file_.get(), times.data()) != 0) return fail_errno("utimensat", entry_.name);
        file_.reset();
        return {};
    }

    Status make_link(const std::string& leaf, const tar::Entry& entry)
    {
        TRY_VOID(clear(leaf));
        // The target is only text here. Whoever follows it does so in the tree's own world.
        if (::symlinkat(entry.target.c_str(), here(), leaf.c_str()) != 0)
            return fail_errno("symlink", entry.name);
        const auto times = times_of(entry.mtime);
        if (::utimensat(here(), leaf.c_str(), times.data(), AT_SYMLINK_NOFOLLOW) != 0)
            return fail_errno("utimensat", entry.name);
        return {};
    }

    // The file a hard link names, one component at a time from the target's folder.
    Result<UniqueFd> open_existing(std::string name) const
    {
        // Never by path: a folder of the archive may have been replaced by a link meanwhile.
        UniqueFd dir = TRY(open_at(target_.folder.get(), ".", O_RDONLY | O_DIRECTORY));
        for (std::size_t slash = 0; (slash = name.find('/')) != std::string::npos;) {
            dir = TRY(
                open_at(dir.get(), name.substr(0, slash), O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
            name.erase(0, slash + 1);
        }
        return open_at(dir.get(), name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    }

    Status copy_existing(const std::string& leaf, const tar::Entry& entry)
    {
        tar::Entry original;
        original.name = entry.target;
        // place() gives it the name under which it was unpacked, not that of the archive.
        const UniqueFd from = TRY_WITH(open_existing(TRY(place(original))), "hard link");
        struct stat info{};
        if (::fstat(from.get(), &info) != 0) return fail_errno("fstat", entry.target);
        if (!S_ISREG(info.st_mode))
            return fail(Code::invalid_argument, "a hard link to no file: " + entry.name);
        TRY_VOID(make_file(leaf, entry));
        // Counted again: one file and many links must not fill a disk past the limit.
        auto left = static_cast<std::uint64_t>(info.st_size);
        copied_ += left;
        std::vector<char> buffer(kUnpackBuffer);
        // Asked before each piece: a file that grows must not outrun the limit.
        while (left > 0 && copied_ <= most_copied_) {
            const ssize_t count = ::read(from.get(), buffer.data(), buffer.size());
            if (count < 0 && errno == EINTR) continue;
            if (count < 0) return fail_errno("read", entry.target);
            if (count == 0) break;
            TRY_VOID(write_all(file_.get(), {buffer.data(), static_cast<std::size_t>(count)}));
            left -= std::min(left, static_cast<std::uint64_t>(count));
        }
        if (copied_ > most_copied_)
            return fail(Code::resource_exhausted, "the hard links of the archive hold more than " +
                                                      std::to_string(most_copied_) + " bytes");
        return {};
    }

    ArchiveTarget target_;
    std::uint64_t most_copied_;  // bytes that hard links may repeat
    std::uint64_t copied_ = 0;
    std::vector<Open> open_;
    std::string tree_;
    bool begun_ = false;
    UniqueFd file_;
    tar::Entry entry_;
};

}  // namespace

Result<ArchiveTarget> open_archive_target(const ArchiveRoot& root, const std::string& path,
                                          Landing landing)
{
    ArchiveTarget target;
    target.landing = landing;
    // A path that is there decides alone: it is a folder to copy into.
    auto folder = open_at2(root.dir, path, O_RDONLY | O_DIRECTORY, 0, root.resolve);
    if (folder) {
        target.folder = std::move(*folder);
        return target;
    }
    const int errnum = folder.error().errnum();
    if (errnum != ENOENT && errnum != ENOTDIR) return fail(folder.error());
    // "a/" and "a/." say that a folder is meant.
    const bool slash = path.ends_with('/') || path.ends_with("/.");
    if (errnum == ENOTDIR && (landing == Landing::content || slash)) return fail(folder.error());
    auto [parent, leaf] = split_path(path);
    // "x/." is x itself: the last component that has a name counts.
    while (leaf == ".") {
        auto [above, last] = split_path(parent);
        if (above == parent) break;
        parent = above;
        leaf = last;
    }
    if (leaf.empty() || leaf == "." || leaf == "..") return fail(folder.error());
    target.folder = TRY(open_at2(root.dir, parent, O_RDONLY | O_DIRECTORY, 0, root.resolve));
    target.rename = leaf;
    target.wants_folder = slash;
    return target;
}

Result<tar::Tally> unpack_archive(ArchiveTarget target, int in, const tar::Limits& limits)
{
    tar::Reader reader(limits);
    Unpacker unpacker(std::move(target), limits.bytes);
    std::vector<std::byte> buffer(kUnpackBuffer);
    // The zero blocks end it, not end of file: a pipe may stay open for what follows.
    while (!reader.ended()) {
        const ssize_t count = ::read(in, buffer.data(), buffer.size());
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return fail_errno("read", "the archive");
        if (count == 0) return fail(Code::corrupt, "the archive ends before its end");
        std::span<const std::byte> bytes(buffer.data(), static_cast<std::size_t>(count));
        while (true) {
            tar::Reader::Item item = TRY(reader.next(bytes));
            if (auto* entry = std::get_if<tar::Entry>(&item))
                TRY_VOID(unpacker.begin(std::move(*entry)));
            else if (const auto* data = std::get_if<tar::Reader::Data>(&item))
                TRY_VOID(unpacker.data(data->bytes));
            else
                break;
        }
    }
    TRY_VOID(unpacker.finish());
    return reader.tally();
}

}  // namespace sandbox::sys
