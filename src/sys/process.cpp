// SPDX-License-Identifier: Apache-2.0
#include "sys/process.hpp"

#include <linux/sched.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "sys/file.hpp"
#include "sys/procfs.hpp"

namespace sandbox::sys {

namespace {

// linux/magic.h, PID_FS_MAGIC. On older kernels a pidfd is an anonymous inode and all of them
// share one number, which identifies nothing.
constexpr unsigned long kPidFsMagic = 0x50494446;

std::uint64_t pidfd_inode(int fd)
{
    struct statfs info{};
    if (::fstatfs(fd, &info) != 0 || static_cast<unsigned long>(info.f_type) != kPidFsMagic)
        return 0;
    const auto identity = identity_of_fd(fd);
    return identity ? identity->inode : 0;
}

ExitStatus decode(const siginfo_t& info)
{
    // Everything else but an exit is a signal: WEXITED reports only ends, waitid(2).
    if (info.si_code == CLD_EXITED) return ExitStatus{info.si_status, 0, false};
    return ExitStatus{0, info.si_status, info.si_code == CLD_DUMPED};
}

Result<UniqueFd> open_pidfd(pid_t pid)
{
    const long fd = ::syscall(SYS_pidfd_open, pid, 0U);
    if (fd < 0) return fail_errno("pidfd_open", std::to_string(pid));
    return UniqueFd(static_cast<int>(fd));
}

// Requires: the pidfd was opened before this and is checked alive after it, so that what /proc
// says between the two is of the same process.
Result<ProcessIdentity> read_identity(pid_t pid, int pidfd)
{
    ProcessIdentity identity;
    identity.pid = pid;
    const ProcDir proc = TRY(ProcDir::open(pid));
    identity.start_time = TRY(proc.stat()).start_time;
    identity.boot_id = TRY(boot_id());
    identity.pidfd_inode = pidfd_inode(pidfd);
    return identity;
}

bool same(const ProcessIdentity& one, const ProcessIdentity& other)
{
    if (one.pid != other.pid || one.start_time != other.start_time || one.boot_id != other.boot_id)
        return false;
    // A kernel without pidfs (before 6.9) has no inode to compare: the other three then decide.
    return one.pidfd_inode == 0 || other.pidfd_inode == 0 || one.pidfd_inode == other.pidfd_inode;
}

}  // namespace

Result<std::string> boot_id()
{
    // No process outlives its boot, and each identity asks. A failure is not kept. By thread: a
    // lock could be held by another thread at a fork and never be free in the child.
    thread_local std::string known;
    if (!known.empty()) return known;
    std::string text = TRY(read_file("/proc/sys/kernel/random/boot_id", 64));
    while (!text.empty() && text.back() == '\n') text.pop_back();
    // A UUID is 36 characters, random(4).
    if (text.size() != 36) return fail(Code::corrupt, "boot_id is not a UUID: " + text);
    known = text;
    return text;
}

Result<ProcessIdentity> identity_of(pid_t pid)
{
    const UniqueFd pidfd = TRY(open_pidfd(pid));
    ProcessIdentity identity = TRY(read_identity(pid, pidfd.get()));
    // Signal 0 through the pidfd: still there, so the number was its own all along.
    // EPERM is an answer as well: the process is there.
    if (::syscall(SYS_pidfd_send_signal, pidfd.get(), 0, nullptr, 0U) != 0 && errno != EPERM)
        return fail_errno("pidfd_send_signal", std::to_string(pid));
    return identity;
}

Result<Pidfd> Pidfd::open(pid_t pid) { return Pidfd(TRY(open_pidfd(pid)), pid); }

Result<Pidfd> Pidfd::open(const ProcessIdentity& identity)
{
    // Opened first: if the number is reused after this, the handle still is of the old process.
    Pidfd handle = TRY(open(identity.pid));
    if (TRY(handle.still_same(identity))) return handle;
    return fail(Code::foreign, "pid " + std::to_string(identity.pid) +
                                   " belongs to another process than the recorded one");
}

Status Pidfd::send_signal(int signal) const
{
    if (::syscall(SYS_pidfd_send_signal, fd_.get(), signal, nullptr, 0U) != 0)
        return fail_errno("pidfd_send_signal", std::to_string(pid_));
    return {};
}

Result<bool> Pidfd::ended() const { return wait_ended(Deadline::at_boottime_ns(0)); }

Result<bool> Pidfd::wait_ended(Deadline deadline) const
{
    // A pidfd is readable once its process is a zombie or gone, pidfd_open(2).
    return TRY(poll_one(fd_.get(), POLLIN, deadline)) != 0;
}

Result<std::optional<ExitStatus>> Pidfd::wait_exit(Deadline deadline) const
{
    if (!TRY(wait_ended(deadline))) return std::nullopt;
    siginfo_t info{};
    int failed = 0;
    do {
        // It has ended: this does not wait.
        failed = ::waitid(P_PIDFD, static_cast<id_t>(fd_.get()), &info, WEXITED);
    } while (failed != 0 && errno == EINTR);
    if (failed != 0) return fail_errno("waitid", std::to_string(pid_));
    return decode(info);
}

Result<bool> Pidfd::still_same(const ProcessIdentity& identity) const
{
    auto found = read_identity(pid_, fd_.get());
    // No such process any more: certainly not the one that was recorded.
    if (!found) {
        if (found.error().code() == Code::not_found) return false;
        return std::unexpected(std::move(found).error());
    }
    return same(*found, identity);
}

Result<CloneResult> clone_process(const CloneOptions& options)
{
    int pidfd = -1;
    clone_args args{};
    args.flags = options.flags | CLONE_PIDFD;
    args.pidfd = reinterpret_cast<std::uintptr_t>(&pidfd);
    // Filled in by the kernel before either side returns: no moment without a handle.
    args.exit_signal = static_cast<std::uint64_t>(options.exit_signal);
    if (options.cgroup_dir >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = static_cast<std::uint64_t>(options.cgroup_dir);
    }
    const long pid = ::syscall(SYS_clone3, &args, sizeof args);
    if (pid < 0) return fail_errno("clone3");
    CloneResult result;
    // In the child the number means nothing: the descriptor is the parent's.
    result.pid = static_cast<pid_t>(pid);
    if (pid != 0) result.pidfd.reset(pidfd);
    return result;
}

Status become_subreaper()
{
    if (::prctl(PR_SET_CHILD_SUBREAPER, 1UL, 0UL, 0UL, 0UL) != 0)
        return fail_errno("prctl(PR_SET_CHILD_SUBREAPER)");
    return {};
}

Status set_parent_death_signal(int signal)
{
    if (::prctl(PR_SET_PDEATHSIG, static_cast<unsigned long>(signal), 0UL, 0UL, 0UL) != 0)
        return fail_errno("prctl(PR_SET_PDEATHSIG)");
    return {};
}

Result<std::optional<Reaped>> reap_any()
{
    siginfo_t info{};
    int failed = 0;
    do {
        // WNOHANG: reaping must never hold a loop.
        failed = ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG);
    } while (failed != 0 && errno == EINTR);
    if (failed != 0) {
        if (errno == ECHILD) return std::nullopt;
        return fail_errno("waitid");
    }
    if (info.si_pid == 0) return std::nullopt;
    return Reaped{info.si_pid, decode(info)};
}

}  // namespace sandbox::sys
