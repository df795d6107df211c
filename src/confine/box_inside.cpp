// SPDX-License-Identifier: Apache-2.0
#include "confine/box_inside.hpp"

#include <fcntl.h>
#include <grp.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "base/failpoint.hpp"
#include "sys/caps.hpp"
#include "sys/cgroup/join.hpp"
#include "sys/mount.hpp"
#include "sys/seccomp/load.hpp"
#include "sys/signals.hpp"

namespace sandbox::confine {

namespace {

constexpr int kFailed = 125;
// Above every number that a descriptor may be given.
constexpr int kHigh = 64;

// What the child inherited from its caller is the caller's own business (law 11).
Status reset_process()
{
    sys::reset_signals();
    ::umask(0022);
    if (::setsid() < 0) return fail_errno("setsid");
    // Law 6. Whoever was killed before this line is noticed at the meeting.
    return sys::set_parent_death_signal(SIGKILL);
}

Status join(const std::vector<int>& tasks, const char* which)
{
    const int errnum = sys::cgroup::join_self(tasks);
    return errnum == 0 ? Status{} : fail(Error::from_errno(errnum, "write", which));
}

Status enter_cgroups(const BoxSpec& spec, const BoxOrder& order)
{
    // Rooted at the top, not where PID 1 lives: under nsdelegate a session's leaf outside the
    // namespace's root could not be joined from inside (ENOENT). v2 did it in its first life.
    TRY_VOID(join(order.top_tasks, "tasks of the sandbox's cgroup"));
    if (spec.own.cgroup && order.control_dir < 0)
        TRY_VOID(sys::unshare_namespaces(CLONE_NEWCGROUP));
    return join(order.control_tasks, "tasks of the control cgroup");
}

Status make_tree(const BoxSpec& spec, const BoxOrder& order)
{
    TRY_VOID(sys::make_all_private());
    // Past here nothing mounted is seen by anybody else.
    TRY_VOID(order.build());
    const sys::UniqueFd root = TRY(sys::open_file(order.root, O_PATH | O_DIRECTORY));
    TRY_VOID(furnish(spec, root.get()));
    failpoint("launcher.in-tree");
    return enter_tree(root.get());
}

// PRIVILEGED: the last namespaces; the caller's user namespace is left for good.
Status leave_callers_world(const BoxSpec& spec)
{
    if (!spec.hostname.empty() && spec.own.uts &&
        ::sethostname(spec.hostname.c_str(), spec.hostname.size()) != 0)
        return fail_errno("sethostname", spec.hostname);
    int flags = 0;
    if (spec.own.user) flags |= CLONE_NEWUSER;
    if (spec.own.net) flags |= CLONE_NEWNET;
    return flags == 0 ? Status{} : sys::unshare_namespaces(flags);
}

Status meet(int meeting)
{
    if (::write(meeting, &kUnshared, 1) != 1) return fail_errno("write", "the launcher");
    char word = 0;
    ssize_t got = 0;
    do got = ::read(meeting, &word, 1);
    while (got < 0 && errno == EINTR);
    if (got != 1 || word != kBegin) return fail(Code::unavailable, "the launcher is gone");
    return {};
}

// Root of the box and nothing of the caller's: ids, groups, keys.
Status take_ids(const BoxSpec& spec)
{
    if (!spec.own.user) return {};
    if (::syscall(SYS_setgroups, 0, nullptr) != 0) return fail_errno("setgroups");
    if (::syscall(SYS_setresgid, 0, 0, 0) != 0) return fail_errno("setresgid");
    if (::syscall(SYS_setresuid, 0, 0, 0) != 0) return fail_errno("setresuid");
    // An anonymous session keyring in place of the caller's; a kernel without keys has none to leak.
    if (::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) < 0 && errno != ENOSYS)
        return fail_errno("keyctl", "session keyring");
    // Changing ids took it away.
    return sys::set_parent_death_signal(SIGKILL);
}

Status errno_status(int errnum, const char* what)
{
    return errnum == 0 ? Status{} : fail(Error::from_errno(errnum, what, "PID 1"));
}

// In their places, the program behind them, nothing else. Up first, then down, so that no number is
// overwritten before it was copied. Returns the program's number.
Result<int> place_descriptors(const BoxOrder& order)
{
    std::vector<int> wanted = order.descriptors;
    wanted.push_back(order.program);
    for (int& number : wanted) {
        number = ::fcntl(number, F_DUPFD_CLOEXEC, kHigh);
        if (number < 0) return fail_errno("fcntl", "F_DUPFD_CLOEXEC");
    }
    const int last = static_cast<int>(order.descriptors.size());
    for (int i = 0; i <= last; ++i)
        if (::dup3(wanted[static_cast<std::size_t>(i)], i, i == last ? O_CLOEXEC : 0) < 0)
            return fail_errno("dup3");
    if (const int errnum = sys::close_range(static_cast<unsigned>(last) + 1, ~0U))
        return fail(Error::from_errno(errnum, "close_range", {}));
    return last;
}

Status confine_self(const BoxSpec& spec)
{
    TRY_VOID(errno_status(sys::drop_bounding(spec.capabilities), "drop the bounding set of"));
    TRY_VOID(errno_status(sys::set_ambient(0), "clear the ambient set of"));
    TRY_VOID(errno_status(sys::apply_caps({spec.capabilities, spec.capabilities, 0}),
                          "set the capabilities of"));
    TRY_VOID(errno_status(sys::set_no_new_privs(), "set no_new_privs of"));
    if (spec.filter.empty()) return {};
    return errno_status(sys::seccomp::load(spec.filter), "load the outer filter of");
}

// `told` is where words go: it moves when the descriptors are placed.
Status become_program(const BoxSpec& spec, const BoxOrder& order, int meeting, int& told)
{
    TRY_VOID(reset_process());
    failpoint("launcher.begin");
    TRY_VOID(enter_cgroups(spec, order));
    failpoint("launcher.in-cgroups");
    TRY_VOID(make_tree(spec, order));
    TRY_VOID(leave_callers_world(spec));
    TRY_VOID(meet(meeting));
    failpoint("launcher.mapped");
    if (spec.own.net) TRY_VOID(raise_loopback());
    TRY_VOID(take_ids(spec));
    const auto place = std::ranges::find(order.descriptors, order.diagnostics);
    const int program = TRY(place_descriptors(order));
    told = place == order.descriptors.end() ? -1
                                            : static_cast<int>(place - order.descriptors.begin());
    failpoint("launcher.before-exec");
    TRY_VOID(confine_self(spec));
    char name[64] = {};
    std::string_view(order.name).substr(0, sizeof name - 1).copy(name, sizeof name - 1);
    char* argv[] = {name, nullptr};
    char* envp[] = {nullptr};
    // PRIVILEGED: what runs are the bytes that were hashed, not a path that was.
    ::syscall(SYS_execveat, program, "", argv, envp, AT_EMPTY_PATH);
    return fail_errno("execveat", order.name);
}

[[noreturn]] void give_up(const Error& error, int told)
{
    const std::string text = error.message();
    if (told >= 0) {
        [[maybe_unused]] const ssize_t written = ::write(told, text.data(), text.size());
    }
    ::_exit(kFailed);
}

Status succeed(const BoxSpec& spec, const BoxOrder& order, int meeting, std::uint64_t flags)
{
    TRY_VOID(sys::set_parent_death_signal(SIGKILL));
    if (spec.own.cgroup) TRY_VOID(sys::unshare_namespaces(CLONE_NEWCGROUP));
    sys::CloneOptions options;
    options.flags = CLONE_PARENT | flags;
    options.exit_signal = 0;  // CLONE_PARENT: that of the first (clone(2))
    options.cgroup_dir = order.control_dir;
    const auto child = TRY(sys::clone_process(options));
    if (child.pid == 0) live_in_box(spec, order, meeting);
    if (::write(meeting, &child.pid, sizeof child.pid) != static_cast<ssize_t>(sizeof child.pid))
        return fail_errno("write", "the launcher");
    ::_exit(0);
}

}  // namespace

void be_born_again(const BoxSpec& spec, const BoxOrder& order, int meeting, std::uint64_t flags)
{
    give_up(succeed(spec, order, meeting, flags).error(), order.diagnostics);
}

void live_in_box(const BoxSpec& spec, const BoxOrder& order, int meeting)
{
    int told = order.diagnostics;
    const auto failed = become_program(spec, order, meeting, told);
    give_up(failed.error(), told);
}

}  // namespace sandbox::confine
