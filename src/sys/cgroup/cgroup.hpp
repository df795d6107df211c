// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "sys/cgroup/join.hpp"
#include "sys/deadline.hpp"
#include "sys/fd.hpp"
#include "sys/procfs.hpp"

namespace sandbox::sys::cgroup {

// What is mounted, whatever carries controllers. hybrid: v1 hierarchies and a v2 beside them.
enum class Layout { none, v1, v2, hybrid };
std::string_view to_string(Layout layout) noexcept;
enum class Version { v1, v2 };

// One mounted hierarchy.
struct Hierarchy {
    Version version = Version::v2;
    std::string mount;                     // "/sys/fs/cgroup/memory"
    std::vector<std::string> controllers;  // v1: co-mounted ones; v2: cgroup.controllers; sorted
    std::string name;                      // v1 named hierarchy ("systemd"), else empty
    bool operator==(const Hierarchy&) const = default;
};

// The cgroup mounts of one moment, in the order of mountinfo. Paths are as this process sees them.
struct Host {
    Layout layout = Layout::none;
    std::vector<Hierarchy> hierarchies;
    // True when crun must not see /sys/fs/cgroup/unified: a tmpfs holds the v1 mounts and the v2
    // one beside them still has controllers (crun 1.8.1 refuses to start then).
    bool cover_unified = false;

    const Hierarchy* v2() const noexcept;
    // Who has this controller; v1 wins, since a controller is in one place at a time. Null: nobody.
    const Hierarchy* with(std::string_view controller) const noexcept;
};

// Members of the cgroup `path` of that controller, those of its children not among them. Empty
// where there is no such cgroup.
[[nodiscard]] Result<std::vector<pid_t>> members(const Host& host, std::string_view controller,
                                                 const std::string& path);

// Pure: the mounts of a process, and what cgroup.controllers of each v2 mount says.
Host detect(const std::vector<MountInfo>& mounts,
            const std::map<std::string, std::string>& v2_controllers);
[[nodiscard]] Result<Host> detect();  // of this process

// As plan::CgroupSetting, which sys may not include. `value` as the kernel reads it back, or
// verify() fails.
struct Setting {
    std::string controller;
    std::string file;
    std::string value;
    bool operator==(const Setting&) const = default;
};

// What a cgroup and all below it used; 0 where the kernel does not tell. Pages of a dead cgroup may
// still be charged to its parent.
struct Usage {
    std::uint64_t memory_bytes = 0;
    std::uint64_t memory_peak = 0;
    std::uint64_t oom_kills = 0;
    std::uint64_t pids = 0;
    std::uint64_t pids_refused = 0;  // forks refused by the limit
    std::uint64_t cpu_usage_us = 0;
    std::uint64_t cpu_throttled_us = 0;
    std::uint64_t cpu_throttled_periods = 0;
};

struct DirIdentity {
    std::string path;  // absolute, in the cgroup mount
    FileIdentity identity;
    bool operator==(const DirIdentity&) const = default;
};

// What a child needs to be in the cgroup. v1: it writes "0" to each descriptor while it is
// single-threaded (join_self). v2: pass dir to CLONE_INTO_CGROUP (CloneOptions::cgroup_dir).
struct JoinHandles {
    std::vector<UniqueFd> tasks;  // v1, opened by us: the opener's credentials count
    UniqueFd dir;  // v2, or invalid
    std::vector<int> task_numbers() const;
};
// One cgroup, known by one path below the root of each hierarchy that is needed. Does not remove
// anything when destroyed: cgroups outlive their makers and are removed by name.
class CgroupTree {
public:
    // Makes "/sandbox/ID" and its parents in every hierarchy that has one of `controllers`; on v2
    // enables them top-down in every ancestor. On v1 fills cpuset.cpus and .mems from the parent.
    // A controller that nobody has is Code::unavailable. The freezer is added on v1: kill needs it.
    // Existing folders are taken over (idempotent).
    [[nodiscard]] static Result<CgroupTree> create(const Host& host, const std::string& path,
                                                   std::span<const std::string> controllers);
    // What exists of it, in any hierarchy of the host: for reconcile. Empty when nothing does.
    // Fails only for what is there and cannot be opened.
    [[nodiscard]] static Result<CgroupTree> find(const Host& host, const std::string& path);

    // The cgroup PATH/NAME, made in the same hierarchies. On v2 its controllers are those enabled
    // in this one by then.
    [[nodiscard]] Result<CgroupTree> make_child(const std::string& name) const;

    const std::string& path() const noexcept { return path_; }
    bool empty() const noexcept { return dirs_.empty(); }  // exists nowhere
    std::vector<std::string> folders() const;  // absolute
    std::vector<DirIdentity> identities() const;

    // v2: enables the controllers for the children. Requires: no process in this cgroup itself.
    // v1: nothing to do.
    [[nodiscard]] Status enable_for_children(std::span<const std::string> controllers) const;
    // Writes, reads back, compares. A difference is Code::conflict naming both.
    // In the order given: the kernel may refuse another. Not undone when one fails.
    [[nodiscard]] Status set(std::span<const Setting> settings) const;
    [[nodiscard]] Status verify(std::span<const Setting> settings) const;  // read back only
    [[nodiscard]] Result<std::string> read(const std::string& controller,
                                           const std::string& file) const;  // trimmed
    // v2: gives cgroup.procs to an id, so that the sandbox's mapped root may clone into it
    // (needed on the session leaf and on the common ancestor). v1: nothing to do.
    [[nodiscard]] Status chown_procs(uid_t uid, gid_t gid) const;

    [[nodiscard]] Result<JoinHandles> join_handles() const;
    // v1: `tasks` given to and opened as `uid`, so that a process of that uid may write itself into
    // it although we are not root outside (cgroup1_procs_write compares the opener's uid). Requires:
    // CAP_CHOWN and CAP_SETUID over it; single-threaded for the moment.
    [[nodiscard]] Result<JoinHandles> join_handles_as(uid_t uid) const;
    // Processes here and below, sorted, each once.
    [[nodiscard]] Result<std::vector<pid_t>> processes() const;
    // SIGKILL to everything here and below, also what forks meanwhile; returns when empty.
    // v2: cgroup.kill. v1: frozen, each process signalled through a pidfd after its membership was
    // seen again, thawed, and again until nothing is left. Code::deadline_exceeded otherwise.
    [[nodiscard]] Status kill_all(Deadline deadline) const;
    // freeze() does not undo itself: after deadline_exceeded the caller decides to thaw().
    [[nodiscard]] Status freeze(Deadline deadline) const;
    [[nodiscard]] Status thaw(Deadline deadline) const;
    // Nothing is locked: the numbers are of slightly different moments.
    [[nodiscard]] Result<Usage> usage() const;
    // Usage::oom_kills alone, which asks one hierarchy and few files: a session's end waits for it.
    [[nodiscard]] Result<std::uint64_t> oom_kills() const;
    // Removes it where nothing is in it or below it. True when it is nowhere any more.
    bool remove_vacant() const noexcept;
    // Removes this and everything below, waiting for it to be empty. Idempotent.
    [[nodiscard]] Status remove(Deadline deadline) const;

private:
    struct Dir {
        Hierarchy hierarchy;
        std::string path;  // absolute
        UniqueFd fd;
    };
    CgroupTree(std::string path, std::vector<Dir> dirs)
        : path_(std::move(path)), dirs_(std::move(dirs))
    {
    }
    const Dir* dir_of(std::string_view controller) const noexcept;
    [[nodiscard]] Status kill_round(Deadline deadline) const;

    std::string path_;
    std::vector<Dir> dirs_;
};

// Removes `path` (for instance "/sandbox") in every hierarchy where it is empty by now; busy is
// success, and so is its absence.
[[nodiscard]] Status remove_if_empty(const Host& host, const std::string& path);

// Moves the calling process, which is single-threaded, to the root of every hierarchy that has
// `path`, and removes `path` where it was the last in it. Needs the right to write the roots; what
// moved stays moved if a later hierarchy fails.
[[nodiscard]] Status leave(const Host& host, const std::string& path);

// The same for one who may not write the roots: to `back`, a cgroup path of its own (v2: one that
// passes no controllers on), in each hierarchy that has it.
[[nodiscard]] Status leave_to(const Host& host, const std::string& path, const std::string& back);

}  // namespace sandbox::sys::cgroup
