// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.hpp"

namespace sandbox::sys {

// Owns one descriptor. The only raw close() of the project is in fd.cpp. Not thread-safe;
// moved-from is invalid, and using that is the kernel's EBADF.
class UniqueFd {
public:
    UniqueFd() noexcept = default;
    explicit UniqueFd(int fd) noexcept : fd_(fd) {}
    UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept;
    UniqueFd(const UniqueFd&) = delete;
    UniqueFd& operator=(const UniqueFd&) = delete;
    ~UniqueFd() { reset(); }

    int get() const noexcept { return fd_; }
    bool valid() const noexcept { return fd_ >= 0; }
    explicit operator bool() const noexcept { return valid(); }
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
    void reset(int fd = -1) noexcept;

private:
    int fd_ = -1;
};

// Every function below opens with O_CLOEXEC whether asked or not. `dir` is a directory descriptor
// or AT_FDCWD; `path` holds no NUL (Code::invalid_argument).
[[nodiscard]] Result<UniqueFd> open_file(const std::string& path, int flags, mode_t mode = 0);
[[nodiscard]] Result<UniqueFd> open_at(int dir, const std::string& path, int flags,
                                       mode_t mode = 0);
// O_PATH | O_DIRECTORY is not enough for fsync or getdents: this opens O_RDONLY | O_DIRECTORY.
[[nodiscard]] Result<UniqueFd> open_dir(const std::string& path);

// openat2(2). `resolve` is a set of RESOLVE_* flags; kBeneath is for names that an untrusted party
// can touch: no way out of `dir`, no symbolic link, no magic link.
extern const std::uint64_t kBeneath;
extern const std::uint64_t kNoSymlinks;  // absolute paths allowed, no link anywhere
[[nodiscard]] Result<UniqueFd> open_at2(int dir, const std::string& path, int flags, mode_t mode,
                                        std::uint64_t resolve);

[[nodiscard]] Result<UniqueFd> duplicate(int fd, int at_least = 0);  // CLOEXEC
// Clears FD_CLOEXEC, for a descriptor that must survive one exec.
[[nodiscard]] Status keep_on_exec(int fd);
// On the open file, so it holds for every descriptor that shares it, also in other processes.
[[nodiscard]] Status set_nonblocking(int fd);

// Closes first..last, all of them. For a forked child: async-signal-safe. 0 or an errno.
int close_range(unsigned first, unsigned last) noexcept;
// For a number whose UniqueFd lives in another process' copy of memory (after fork).
void close_number(int fd) noexcept;

// Device and inode: what a descriptor refers to, for identity records. Unique among what exists: an
// inode may be reused once its file is gone.
struct FileIdentity {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    bool operator==(const FileIdentity&) const = default;
};
[[nodiscard]] Result<FileIdentity> identity_of_fd(int fd);

// "/proc/self/fd/N": reaches what the descriptor refers to, whatever moved since. Needs /proc.
std::string fd_path(int fd);

}  // namespace sandbox::sys
