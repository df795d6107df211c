// SPDX-License-Identifier: Apache-2.0
#include "sys/fd.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace sandbox::sys {

// openat2(2): BENEATH alone would still allow links that stay inside; a hostile tree can use those
// to make two names one file.
const std::uint64_t kBeneath = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
const std::uint64_t kNoSymlinks = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;

namespace {

// std::string may hold one, and the kernel would stop there: the path judged would not be the path
// opened.
bool has_nul(const std::string& path) { return path.find('\0') != std::string::npos; }

std::unexpected<Error> nul_in_path()
{
    return fail(Code::invalid_argument, "a path with a NUL byte cannot be opened");
}

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept
{
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
}

void UniqueFd::reset(int fd) noexcept
{
    const int old = std::exchange(fd_, fd);
    if (old >= 0) close_number(old);
}

void close_number(int fd) noexcept
{
    // close(2) on Linux frees the number even when it fails, so it is never retried; errno belongs
    // to whatever the caller did before.
    const int saved = errno;
    ::close(fd);
    errno = saved;
}

Result<UniqueFd> open_file(const std::string& path, int flags, mode_t mode)
{
    return open_at(AT_FDCWD, path, flags, mode);
}

Result<UniqueFd> open_at(int dir, const std::string& path, int flags, mode_t mode)
{
    if (has_nul(path)) return nul_in_path();
    int fd = -1;
    do {
        // EINTR: a FIFO or a slow file system (open(2)).
        fd = ::openat(dir, path.c_str(), flags | O_CLOEXEC, mode);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) return fail_errno("openat", path);
    return UniqueFd(fd);
}

Result<UniqueFd> open_dir(const std::string& path)
{
    return open_file(path, O_RDONLY | O_DIRECTORY);
}

Result<UniqueFd> open_at2(int dir, const std::string& path, int flags, mode_t mode,
                          std::uint64_t resolve)
{
    if (has_nul(path)) return nul_in_path();
    open_how how{};
    how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
    how.mode = mode;
    how.resolve = resolve;
    // EAGAIN: a rename ran beside a RESOLVE_BENEATH walk (openat2(2)). Bounded, since whoever
    // renames may be hostile.
    for (int attempt = 0; attempt < 64; ++attempt) {
        const long fd = ::syscall(SYS_openat2, dir, path.c_str(), &how, sizeof how);
        if (fd >= 0) return UniqueFd(static_cast<int>(fd));
        if (errno != EAGAIN && errno != EINTR) break;
    }
    return fail_errno("openat2", path);
}

Result<UniqueFd> duplicate(int fd, int at_least)
{
    const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, at_least);
    if (copy < 0) return fail_errno("fcntl(F_DUPFD_CLOEXEC)", std::to_string(fd));
    return UniqueFd(copy);
}

Status keep_on_exec(int fd)
{
    const int flags = ::fcntl(fd, F_GETFD);
    if (flags < 0 || ::fcntl(fd, F_SETFD, flags & ~FD_CLOEXEC) < 0)
        return fail_errno("fcntl(F_SETFD)", std::to_string(fd));
    return {};
}

Status set_nonblocking(int fd)
{
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return fail_errno("fcntl(F_SETFL)", std::to_string(fd));
    return {};
}

int close_range(unsigned first, unsigned last) noexcept
{
    if (first > last) return 0;
    // Linux 5.9.
    return ::syscall(SYS_close_range, first, last, 0U) == 0 ? 0 : errno;
}

Result<FileIdentity> identity_of_fd(int fd)
{
    struct stat info{};
    if (::fstat(fd, &info) != 0) return fail_errno("fstat", std::to_string(fd));
    return FileIdentity{info.st_dev, info.st_ino};
}

std::string fd_path(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

}  // namespace sandbox::sys
