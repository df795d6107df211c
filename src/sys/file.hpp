// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "sys/deadline.hpp"
#include "sys/fd.hpp"

namespace sandbox::sys {

// Reads to end of file, blocking. More than `limit` bytes is Code::resource_exhausted, never a cut.
// Links in `path` are followed: only for names that nobody hostile can touch.
[[nodiscard]] Result<std::string> read_all(int fd, std::size_t limit);
[[nodiscard]] Result<std::string> read_file_at(int dir, const std::string& path, std::size_t limit);
[[nodiscard]] Result<std::string> read_file(const std::string& path, std::size_t limit);

// Loops over short writes and EINTR. A full pipe that is non-blocking is Code::resource_exhausted,
// and part of the bytes may have gone. A reader that went away is EPIPE; Requires: SIGPIPE is
// ignored.
[[nodiscard]] Status write_all(int fd, std::string_view bytes);

// One write(2) to an existing file: for /proc and cgroup files, where a second write is a second
// command. A short write is an error.
[[nodiscard]] Status write_control_at(int dir, const std::string& path, std::string_view value);

// Writes a file anew: temporary name (PATH.new), fsync, rename over `path`, fsync of the folder.
// Durable when it succeeds. One writer at a time.
[[nodiscard]] Status replace_file_at(int dir, const std::string& path, std::string_view bytes,
                                     mode_t mode);
// Creates (O_EXCL, no link followed) and writes. Code::already_exists when the name is taken.
[[nodiscard]] Status write_file_at(int dir, const std::string& path, std::string_view bytes,
                                   mode_t mode);

// Durable when they return success. After a failure nothing is known; do not try again and believe
// it.
[[nodiscard]] Status fsync_fd(int fd);
[[nodiscard]] Status fsync_dir(const std::string& path);

// 0700 unless told; an existing folder is Code::already_exists.
[[nodiscard]] Status mkdir_at(int dir, const std::string& path, mode_t mode = 0700);
// Makes what is missing of an absolute or relative path; existing folders are left as they are.
[[nodiscard]] Status make_dirs(const std::string& path, mode_t mode = 0700);
[[nodiscard]] Status rename_at(int from_dir, const std::string& from, int to_dir,
                               const std::string& to);
[[nodiscard]] Status unlink_at(int dir, const std::string& path);  // a file, link or socket
[[nodiscard]] Status rmdir_at(int dir, const std::string& path);
// Everything below and including `path`, never through a link and never into another mount.
// Idempotent: a missing path is success.
[[nodiscard]] Status remove_tree_at(int dir, const std::string& path);
[[nodiscard]] Result<std::string> readlink_at(int dir, const std::string& path);
// Names in a folder without "." and "..", sorted. At most `limit` of them.
[[nodiscard]] Result<std::vector<std::string>> list_dir(int dir_fd, std::size_t limit = 65536);

// Numbers in an open /proc/PID/fd folder, sorted. Opens nothing: works where Landlock forbids it.
[[nodiscard]] Result<std::vector<int>> open_numbers(int proc_fd_dir, std::size_t limit);

struct Pipe {
    UniqueFd read;
    UniqueFd write;
};
[[nodiscard]] Result<Pipe> make_pipe();  // both ends CLOEXEC, blocking

// Waits for `events` (POLLIN, …) on one descriptor. 0 when the deadline passed; else revents, which
// may hold POLLHUP or POLLERR alone.
[[nodiscard]] Result<short> poll_one(int fd, short events, Deadline deadline);

// An anonymous file, allowed to be executed and sealed, CLOEXEC (memfd_create(2)). `name` is for
// /proc only.
[[nodiscard]] Result<UniqueFd> make_memfd(const std::string& name);
// SEAL | SHRINK | GROW | WRITE: nothing can change the bytes any more.
[[nodiscard]] Status seal_memfd(int fd);
[[nodiscard]] Result<bool> is_sealed(int fd);
// A sealed memfd with these bytes.
[[nodiscard]] Result<UniqueFd> sealed_memfd(const std::string& name, std::string_view bytes);

}  // namespace sandbox::sys
