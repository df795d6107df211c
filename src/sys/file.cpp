// SPDX-License-Identifier: Apache-2.0
#include "sys/file.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace sandbox::sys {

namespace {

// A control file or a config in one read.
constexpr std::size_t kChunk = 16384;

std::unexpected<Error> too_long(const std::string& what, std::size_t limit)
{
    return fail(Code::resource_exhausted,
                what + " holds more than the " + std::to_string(limit) + " bytes allowed here");
}

}  // namespace

Result<std::string> read_all(int fd, std::size_t limit)
{
    std::string text;
    for (;;) {
        const std::size_t have = text.size();
        // One byte beyond the limit is asked for, to tell "exactly full" from "more".
        // limit - have cannot wrap: more than the limit has returned below.
        const std::size_t want = std::min(kChunk, limit - have + 1);
        text.resize(have + want);
        const ssize_t got = ::read(fd, text.data() + have, want);
        if (got < 0) {
            text.resize(have);
            if (errno == EINTR) continue;
            return fail_errno("read", std::to_string(fd));
        }
        text.resize(have + static_cast<std::size_t>(got));
        if (got == 0) return text;
        if (text.size() > limit) return too_long("descriptor " + std::to_string(fd), limit);
    }
}

Result<std::string> read_file_at(int dir, const std::string& path, std::size_t limit)
{
    const UniqueFd fd = TRY(open_at(dir, path, O_RDONLY));
    return TRY_WITH(read_all(fd.get(), limit), "read " + path);
}

Result<std::string> read_file(const std::string& path, std::size_t limit)
{
    return read_file_at(AT_FDCWD, path, limit);
}

Status write_all(int fd, std::string_view bytes)
{
    while (!bytes.empty()) {
        const ssize_t put = ::write(fd, bytes.data(), bytes.size());
        if (put < 0) {
            // Everything else ends it: a partly written file is the caller's to take back.
            if (errno == EINTR) continue;
            return fail_errno("write", std::to_string(fd));
        }
        bytes.remove_prefix(static_cast<std::size_t>(put));
    }
    return {};
}

Status write_control_at(int dir, const std::string& path, std::string_view value)
{
    const UniqueFd fd = TRY(open_at(dir, path, O_WRONLY));
    const ssize_t put = ::write(fd.get(), value.data(), value.size());
    if (put < 0) return fail_errno("write", path);
    if (static_cast<std::size_t>(put) != value.size())
        return fail(Code::io, "write " + path + ": the kernel took only a part");
    return {};
}

Status write_file_at(int dir, const std::string& path, std::string_view bytes, mode_t mode)
{
    const UniqueFd fd = TRY(open_at(dir, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode));
    // The umask is this process's: the mode asked for is the mode that counts.
    if (::fchmod(fd.get(), mode) != 0) return fail_errno("fchmod", path);
    return write_all(fd.get(), bytes);
}

Status replace_file_at(int dir, const std::string& path, std::string_view bytes, mode_t mode)
{
    const std::string temporary = path + ".new";
    // A crash of an earlier writer may have left one; O_EXCL would then refuse for ever.
    if (::unlinkat(dir, temporary.c_str(), 0) != 0 && errno != ENOENT)
        return fail_errno("unlinkat", temporary);
    const UniqueFd fd = TRY(
        open_at(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode));
    if (::fchmod(fd.get(), mode) != 0) return fail_errno("fchmod", temporary);
    TRY_VOID(write_all(fd.get(), bytes));
    // Content first, then the name, then the folder: a power cut leaves the old file or the new
    // one.
    TRY_VOID(fsync_fd(fd.get()));
    TRY_VOID(rename_at(dir, temporary, dir, path));
    const auto slash = path.rfind('/');
    const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    const UniqueFd folder = TRY(open_at(dir, parent, O_RDONLY | O_DIRECTORY));
    return fsync_fd(folder.get());
}

Status fsync_fd(int fd)
{
    if (::fsync(fd) != 0) return fail_errno("fsync", std::to_string(fd));
    return {};
}

Status fsync_dir(const std::string& path)
{
    const UniqueFd fd = TRY(open_dir(path));
    return fsync_fd(fd.get());
}

Status mkdir_at(int dir, const std::string& path, mode_t mode)
{
    if (::mkdirat(dir, path.c_str(), mode) != 0) return fail_errno("mkdirat", path);
    return {};
}

Status make_dirs(const std::string& path, mode_t mode)
{
    // Nearly always at most the last one is missing.
    if (::mkdir(path.c_str(), mode) == 0) return {};
    const std::size_t first = errno == EEXIST ? path.size() : 1;
    for (std::size_t at = first; at <= path.size(); ++at) {
        if (at != path.size() && path[at] != '/') continue;
        const std::string part = path.substr(0, at);
        // EEXIST also where another process was faster, or where a file is in the way: the last
        // look tells.
        if (::mkdir(part.c_str(), mode) == 0 || errno == EEXIST) continue;
        return fail_errno("mkdir", part);
    }
    struct stat info{};
    if (::stat(path.c_str(), &info) != 0) return fail_errno("stat", path);
    if (!S_ISDIR(info.st_mode)) return fail(Code::conflict, path + " exists and is no folder");
    return {};
}

Status rename_at(int from_dir, const std::string& from, int to_dir, const std::string& to)
{
    if (::renameat(from_dir, from.c_str(), to_dir, to.c_str()) != 0)
        return fail_errno("renameat", from + " -> " + to);
    return {};
}

Status unlink_at(int dir, const std::string& path)
{
    if (::unlinkat(dir, path.c_str(), 0) != 0) return fail_errno("unlinkat", path);
    return {};
}

Status rmdir_at(int dir, const std::string& path)
{
    if (::unlinkat(dir, path.c_str(), AT_REMOVEDIR) != 0) return fail_errno("rmdir", path);
    return {};
}

Result<std::string> readlink_at(int dir, const std::string& path)
{
    // PATH_MAX bounds what the kernel returns for any link but those of /proc, which fit too.
    std::string target(4096, '\0');
    const ssize_t got = ::readlinkat(dir, path.c_str(), target.data(), target.size());
    if (got < 0) return fail_errno("readlinkat", path);
    // Exactly full may be cut.
    if (static_cast<std::size_t>(got) == target.size()) return too_long("link " + path, 4095);
    target.resize(static_cast<std::size_t>(got));
    return target;
}

Result<Pipe> make_pipe()
{
    int ends[2] = {-1, -1};
    if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe2");
    return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

Result<short> poll_one(int fd, short events, Deadline deadline)
{
    for (;;) {
        pollfd entry{fd, events, 0};
        const int ready = ::poll(&entry, 1, deadline.poll_timeout());
        if (ready > 0) return entry.revents;
        if (ready < 0 && errno != EINTR) return fail_errno("poll", std::to_string(fd));
        // A signal, or an early return: the deadline is asked, not counted down.
        if (deadline.passed()) return short{0};
    }
}

}  // namespace sandbox::sys
