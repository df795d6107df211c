// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "sys/fd.hpp"

namespace sandbox::sys {

// Parsers are pure: text in, value or Code::corrupt out. What a process chose itself (its name, its
// mounts' names) is hostile. Sources: proc(5), kernel fs/proc/array.c, fs/proc_namespace.c,
// kernel/user_namespace.c.

struct ProcStat {
    pid_t pid = 0;
    std::string comm;  // may hold anything, ')' and newline included
    char state = '?';
    pid_t ppid = 0;
    pid_t pgrp = 0;
    pid_t session = 0;
    std::uint64_t start_time = 0;  // clock ticks since boot
    bool operator==(const ProcStat&) const = default;
};
[[nodiscard]] Result<ProcStat> parse_stat(std::string_view text);

struct ProcStatus {
    std::array<std::uint32_t, 4> uid{};  // real, effective, saved, filesystem
    std::array<std::uint32_t, 4> gid{};
    std::vector<std::uint32_t> groups;
    std::vector<pid_t> ns_pid;  // outermost namespace first
    std::uint64_t cap_inheritable = 0;
    std::uint64_t cap_permitted = 0;
    std::uint64_t cap_effective = 0;
    std::uint64_t cap_bounding = 0;
    std::uint64_t cap_ambient = 0;
    bool no_new_privs = false;
    int seccomp = 0;  // 0 off, 1 strict mode, 2 filter
    int seccomp_filters = 0;
    std::uint32_t umask = 0;
    int threads = 0;
    bool operator==(const ProcStatus&) const = default;
};
[[nodiscard]] Result<ProcStatus> parse_status(std::string_view text);

// `count` ids from `inside` on are `outside` and those after it, in the reader's parent namespace.
struct IdMapping {
    std::uint32_t inside = 0;
    std::uint32_t outside = 0;
    std::uint32_t count = 0;
    auto operator<=>(const IdMapping&) const = default;
};
[[nodiscard]] Result<std::vector<IdMapping>> parse_id_map(std::string_view text);
std::string format_id_map(const std::vector<IdMapping>& map);

struct MountInfo {
    std::uint64_t id = 0;
    std::uint64_t parent = 0;
    std::uint32_t major = 0;
    std::uint32_t minor = 0;
    std::string root;
    std::string target;  // unescaped
    std::vector<std::string> options;  // per mount: "ro", "nosuid", …
    std::vector<std::string> optional;  // "shared:3", "master:1"
    std::string fstype;
    std::string source;  // unescaped
    std::vector<std::string> super_options;
    bool has(std::string_view option) const;  // in options
    bool operator==(const MountInfo&) const = default;
};
[[nodiscard]] Result<std::vector<MountInfo>> parse_mountinfo(std::string_view text);

struct CgroupLine {
    std::uint32_t hierarchy = 0;  // 0: v2
    std::vector<std::string> controllers;  // empty for v2; "name=systemd" stays as it is
    std::string path;
    bool operator==(const CgroupLine&) const = default;
};
[[nodiscard]] Result<std::vector<CgroupLine>> parse_cgroup(std::string_view text);

// Ceiling for one /proc file that we read: mountinfo of a busy host is well below.
inline constexpr std::size_t kProcFileLimit = 8U << 20;

// One folder of /proc, opened once: what is read through it is of this process or fails (ESRCH),
// however the number is reused. Each call reads anew. Failures: not_found (it is gone), corrupt,
// resource_exhausted above kProcFileLimit.
class ProcDir {
public:
    [[nodiscard]] static Result<ProcDir> open(pid_t pid);
    [[nodiscard]] static Result<ProcDir> self();

    int fd() const noexcept { return fd_.get(); }
    [[nodiscard]] Result<std::string> text(const std::string& name) const;
    [[nodiscard]] Result<ProcStat> stat() const;
    [[nodiscard]] Result<ProcStatus> status() const;
    [[nodiscard]] Result<std::vector<IdMapping>> uid_map() const;
    [[nodiscard]] Result<std::vector<IdMapping>> gid_map() const;
    [[nodiscard]] Result<std::vector<MountInfo>> mountinfo() const;
    [[nodiscard]] Result<std::vector<CgroupLine>> cgroup() const;
    // Inode of ns/NAME ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup").
    [[nodiscard]] Result<std::uint64_t> namespace_inode(const std::string& name) const;
    [[nodiscard]] Result<UniqueFd> open_namespace(const std::string& name) const;

private:
    explicit ProcDir(UniqueFd fd) noexcept : fd_(std::move(fd)) {}
    UniqueFd fd_;
};

}  // namespace sandbox::sys
