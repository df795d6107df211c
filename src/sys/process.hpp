// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "sys/deadline.hpp"
#include "sys/fd.hpp"

namespace sandbox::sys {

// Which process, not which number. Two identities are of one process when boot id, pid and start
// time agree and, where both have one, the pidfd inode.
struct ProcessIdentity {
    pid_t pid = 0;
    std::uint64_t start_time = 0;   // clock ticks since boot: field 22 of /proc/PID/stat
    std::string boot_id;            // /proc/sys/kernel/random/boot_id
    std::uint64_t pidfd_inode = 0;  // pidfs (kernel 6.9 and later); 0 where there is none

    bool operator==(const ProcessIdentity&) const = default;
};

// Of the running kernel; it never changes while a process lives. Kept after the first read.
[[nodiscard]] Result<std::string> boot_id();
// Code::not_found when there is no such process.
[[nodiscard]] Result<ProcessIdentity> identity_of(pid_t pid);

struct ExitStatus {
    int code = 0;    // valid when signal is 0
    int signal = 0;  // the signal that ended it, else 0
    bool dumped = false;
    bool operator==(const ExitStatus&) const = default;
};

// A handle on one process. Signals go through it and so never hit a reused number.
class Pidfd {
public:
    [[nodiscard]] static Result<Pidfd> open(pid_t pid);
    // Opens and proves: Code::foreign when the number belongs to another process now,
    // Code::not_found when nobody has it.
    [[nodiscard]] static Result<Pidfd> open(const ProcessIdentity& identity);
    // From clone3 or SCM_PIDFD. `pid` is the number in our pid namespace.
    Pidfd(UniqueFd fd, pid_t pid) noexcept : fd_(std::move(fd)), pid_(pid) {}

    int fd() const noexcept { return fd_.get(); }
    pid_t pid() const noexcept { return pid_; }

    // Code::not_found when it has been reaped.
    [[nodiscard]] Status send_signal(int signal) const;
    // True when the process has ended (a zombie counts as ended).
    [[nodiscard]] Result<bool> ended() const;
    // Waits until it ended, for processes that are not our children too. False: deadline passed.
    [[nodiscard]] Result<bool> wait_ended(Deadline deadline) const;
    // Children only: waits and reaps. Nothing when the deadline passed.
    [[nodiscard]] Result<std::optional<ExitStatus>> wait_exit(Deadline deadline) const;
    // False also for a process that has ended and was reaped.
    [[nodiscard]] Result<bool> still_same(const ProcessIdentity& identity) const;

private:
    UniqueFd fd_;
    pid_t pid_ = 0;
};

struct CloneOptions {
    std::uint64_t flags = 0;  // CLONE_NEW*; CLONE_PIDFD is always added
    int cgroup_dir = -1;  // v2 folder descriptor: CLONE_INTO_CGROUP
    int exit_signal = SIGCHLD;
};

struct CloneResult {
    pid_t pid = 0;  // 0 in the child
    UniqueFd pidfd;  // parent only
};

// clone3(2), fork-like: returns twice. Requires: the caller is single-threaded (no atfork handlers
// run, no lock is reset), and the child calls nothing that needs one.
[[nodiscard]] Result<CloneResult> clone_process(const CloneOptions& options);

// Orphans below us become our children, and are reaped by us, prctl(2).
[[nodiscard]] Status become_subreaper();
// Of the calling process, when the thread that made it ends. Cleared by executing a set-id program;
// check getppid() afterwards, the parent may be gone already.
[[nodiscard]] Status set_parent_death_signal(int signal);
// Reaps one ended child by number, whoever it is. Nothing when none has ended.
struct Reaped {
    pid_t pid = 0;
    ExitStatus status;
};
[[nodiscard]] Result<std::optional<Reaped>> reap_any();

}  // namespace sandbox::sys
