// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe/tasks.hpp"
#include "probe/tiny_program.hpp"
#include "sys/caps.hpp"
#include "sys/fd.hpp"
#include "sys/file.hpp"
#include "sys/landlock.hpp"
#include "sys/process.hpp"
#include "sys/procfs.hpp"
#include "sys/seccomp/compile.hpp"
#include "sys/seccomp/load.hpp"

namespace sandbox::probe {

namespace {

namespace name = facts::name;

// Exit statuses of the inner processes.
enum Step : int { kDone = 0, kApplyFailed = 20, kNotInForce = 21, kRefusedToo = 22 };

// linux/magic.h of 6.9; Debian 12's header is older. Pidfd inodes are unique only on pidfs.
constexpr long kPidfsMagic = 0x50494446;

Finding check_pidfd()
{
    // A child that sleeps: the handle is of a live process, and is seen to end it.
    const pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(EXIT_SUCCESS);
    }
    if (child < 0) return missing_errno("fork");
    auto handle = sys::Pidfd::open(child);
    if (!handle) {
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
        return missing(handle.error().message());
    }
    // As recovery does it: by the handle alone.
    const Status sent = handle->send_signal(SIGKILL);
    if (!sent) kill(child, SIGKILL);
    const auto end = handle->wait_exit(sys::Deadline::after(Millis{500}));
    if (!sent) return missing(sent.error().message());
    if (!end || !*end || (*end)->signal != SIGKILL) {
        return missing("waitid(P_PIDFD) did not report the signal sent through the pidfd");
    }
    struct statfs where{};
    const bool unique = fstatfs(handle->fd(), &where) == 0 && where.f_type == kPidfsMagic;
    return found(unique ? "pidfs" : "anonymous",
                 "pidfd_open, pidfd_send_signal and waitid(P_PIDFD) ended a child");
}

Finding check_memfd()
{
    const std::string program = tiny_exit_program();
    if (program.empty()) return missing("no test program for this architecture");
    // As the pin is used: sealed first, executed afterwards.
    const auto file = sys::sealed_memfd("sandbox-probe", program);
    if (!file) return missing(file.error().message());
    // Seals first: an executable memfd that could be written is no pin.
    if (pwrite(file->get(), "x", 1, 0) != -1 || errno != EPERM) {
        return missing("a sealed memfd could be written");
    }
    const ProgramEnd end = run_program({.executable = file->get(), .argv = {"probe"}});
    if (end.status != kTinyExitStatus) {
        return missing(fmt::format("fexecve of a sealed memfd ended with {}, wanted {}; "
                                   "/proc/sys/vm/memfd_noexec may forbid it",
                                   end.status, kTinyExitStatus));
    }
    return found("yes", "writing a sealed memfd gave EPERM, executing it worked");
}

Finding check_no_new_privs()
{
    // In a process of its own: it cannot be taken back.
    const int status = in_process([]() -> int {
        if (sys::set_no_new_privs() != 0) return kApplyFailed;
        const auto self = sys::ProcDir::self();
        const auto now = self ? self->status() : Result<sys::ProcStatus>(sys::ProcStatus{});
        return now && now->no_new_privs ? kDone : kNotInForce;
    });
    if (status == kDone) return found("yes", "prctl set it, /proc/self/status says NoNewPrivs 1");
    return missing(status == kApplyFailed ? "PR_SET_NO_NEW_PRIVS failed"
                                          : fmt::format("NoNewPrivs not seen ({})", status));
}

// Our own inner filter, really loaded: one call it refuses, one it answers with ENOSYS, one that
// goes on working, and what /proc says.
int try_filter()
{
    const auto arch = sys::seccomp::native_arch();
    if (!arch) return kApplyFailed;
    const auto program = sys::seccomp::compile(sys::seccomp::Profile::standard, *arch);
    // Opened before the filter is loaded: opening may be what it refuses.
    const auto self = sys::ProcDir::self();
    if (!self || sys::seccomp::load(program) != 0) return kApplyFailed;
    // Size and flags are valid: only the filter can make this fail with ENOSYS.
    clone_args arguments{};
    if (syscall(SYS_clone3, &arguments, sizeof arguments) != -1 || errno != ENOSYS) {
        return kNotInForce;
    }
    if (syscall(SYS_bpf, 0, nullptr, 0) != -1 || errno != EPERM) return kNotInForce;
    const auto now = self->status();
    if (!now) return kRefusedToo;
    // 2 is filter mode, proc(5).
    return now->seccomp == 2 && now->no_new_privs ? kDone : kNotInForce;
}

Finding check_seccomp()
{
    const int status = in_process(try_filter);
    if (status == kDone) {
        return found("yes", "our inner filter loaded: clone3 gave ENOSYS, bpf EPERM, Seccomp is 2");
    }
    if (status == kApplyFailed) return missing("SECCOMP_SET_MODE_FILTER refused our filter");
    return missing(fmt::format("filter loaded but not in force as compiled ({})", status));
}

int try_landlock(int abi)
{
    sys::LandlockRules rules;
    rules.abi = abi;
    // Everything this kernel can handle: a part would prove only that part.
    rules.handled_fs = sys::landlock::all_fs(abi);
    rules.handled_net = sys::landlock::all_net(abi);
    rules.scopes = sys::landlock::all_scopes(abi);
    // A positive control beside the negative one: a ruleset that refused everything would pass too.
    rules.paths.push_back({"/proc", sys::landlock::kReadExecute});
    if (sys::set_no_new_privs() != 0) return kApplyFailed;
    const char* failed_path = nullptr;
    if (sys::apply_landlock(rules, &failed_path) != 0) return kApplyFailed;
    if (sys::open_file("/etc", O_RDONLY | O_DIRECTORY)) return kNotInForce;
    return sys::open_file("/proc/self/status", O_RDONLY) ? kDone : kRefusedToo;
}

Finding check_landlock()
{
    const int abi = sys::landlock_abi();
    if (abi <= 0) return missing_errno("landlock_create_ruleset(VERSION)");
    const int status = in_process([abi] { return try_landlock(abi); });
    if (status == kDone) {
        return found(std::to_string(abi),
                     fmt::format("ABI {}: with a rule for /proc alone, /etc was refused", abi));
    }
    return missing(fmt::format("ABI {} offered but a ruleset was not in force ({})", abi, status));
}

}  // namespace

Task confinement_task()
{
    Task task;
    task.label = "confinement";
    task.names = {name::kPidfd, name::kMemfdSeal, name::kNoNewPrivileges, name::kSeccomp,
                  name::kLandlock};
    task.body = [](const Reporter& out) {
        out.report(name::kPidfd, check_pidfd());
        out.report(name::kMemfdSeal, check_memfd());
        out.report(name::kNoNewPrivileges, check_no_new_privs());
        out.report(name::kLandlock, check_landlock());
        // Last: a filter that is stricter than meant would spoil what comes after it.
        out.report(name::kSeccomp, check_seccomp());
    };
    return task;
}

}  // namespace sandbox::probe
