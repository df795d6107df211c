// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include <gtest/gtest.h>

#include "child.hpp"
#include "sys/seccomp/compile.hpp"
#include "sys/seccomp/load.hpp"

namespace sandbox::sys::seccomp {

namespace {

using testing::in_child;
using testing::TempDir;

enum class Ring { none, standard, strict };

// The result as an exit code: 0 for success, else the errno.
int code(long result) { return result >= 0 ? 0 : errno; }

void enter(Ring ring)
{
    if (ring == Ring::none) return;
    const Profile profile = ring == Ring::strict ? Profile::strict : Profile::standard;
    const auto program = compile(profile, *native_arch());
    if (load(program) != 0) ::_exit(254);
}

template <class Body>
ExitStatus under(Ring ring, Body&& body)
{
    return in_child([&] {
        enter(ring);
        return body();
    });
}

struct Attempt {
    const char* name;
    int expected;     // errno under the filter
    int (*body)();    // errno, or 0
};

int clone_new_user()
{
    const long pid = ::syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0L, 0L, 0L, 0L);
    if (pid == 0) ::_exit(0);
    return code(pid);
}

int clone_three()
{
    std::uint64_t args[8] = {};
    args[4] = SIGCHLD;
    const long pid = ::syscall(SYS_clone3, args, sizeof args);
    if (pid == 0) ::_exit(0);
    return code(pid);
}

int set_id_file()
{
    const char* name = "/tmp/sandbox-unit-setid";
    const long fd = ::syscall(SYS_openat, AT_FDCWD, name, O_CREAT | O_WRONLY, 04755);
    const int result = code(fd);
    ::unlink(name);
    return result;
}

int change_mode(long nr_at, unsigned mode)
{
    const int fd = ::memfd_create("mode", MFD_CLOEXEC);
    return nr_at == 0 ? code(::syscall(SYS_fchmod, fd, mode))
                      : code(::syscall(nr_at, AT_FDCWD, "/proc/self/fd/9999", mode, 0));
}

int device_node()
{
    const char* name = "/tmp/sandbox-unit-device";
    const int result = code(::syscall(SYS_mknodat, AT_FDCWD, name, S_IFCHR | 0600, 0x103));
    ::unlink(name);
    return result;
}

int read_self()
{
    char from = 'x';
    char to = 0;
    iovec local{&to, 1};
    iovec remote{&from, 1};
    return code(::syscall(SYS_process_vm_readv, ::getpid(), &local, 1L, &remote, 1L, 0L));
}

// Arguments are such that the call does nothing lasting: what counts is that it was entered.
const Attempt kAttempts[] = {
    {"UnshareOfAUserNamespace", EPERM, [] { return code(::unshare(CLONE_NEWUSER)); }},
    {"UnshareOfAMountNamespace", EPERM, [] { return code(::unshare(CLONE_NEWNS)); }},
    {"CloneIntoAUserNamespace", EPERM, clone_new_user},
    {"Clone3", ENOSYS, clone_three},
    {"Openat2", ENOSYS,
     [] {
         std::uint64_t how[3] = {O_PATH, 0, 0};
         return code(::syscall(SYS_openat2, AT_FDCWD, "/", how, sizeof how));
     }},
    {"Setns", EPERM,
     [] { return code(::syscall(SYS_setns, ::open("/proc/self/ns/uts", O_RDONLY), 0)); }},
    {"IoUring", EPERM,
     [] {
         io_uring_params params{};
         return code(::syscall(SYS_io_uring_setup, 1, &params));
     }},
    {"Bpf", EPERM,
     [] {
         bpf_attr attr{};
         return code(::syscall(SYS_bpf, BPF_PROG_GET_NEXT_ID, &attr, sizeof attr));
     }},
    {"PerfEvents", EPERM,
     [] { return code(::syscall(SYS_perf_event_open, nullptr, 0, -1, -1, 0)); }},
    {"Keyctl", EPERM, [] { return code(::syscall(SYS_keyctl, 0, -3, 0)); }},
    {"AddKey", EPERM,
     [] { return code(::syscall(SYS_add_key, "user", "sandbox-unit", "x", 1L, -2)); }},
    {"RequestKey", EPERM,
     [] { return code(::syscall(SYS_request_key, "user", "sandbox-unit-none", nullptr, 0)); }},
    {"Userfaultfd", EPERM, [] { return code(::syscall(SYS_userfaultfd, O_CLOEXEC)); }},
    {"Ptrace", EPERM, [] { return code(::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)); }},
    {"ReadingAnotherProcess", EPERM, read_self},
    {"Kcmp", EPERM, [] { return code(::syscall(SYS_kcmp, ::getpid(), ::getpid(), 0, 0L, 0L)); }},
    {"StealingADescriptor", EPERM,
     [] {
         const long self = ::syscall(SYS_pidfd_open, ::getpid(), 0);
         return code(::syscall(SYS_pidfd_getfd, self, 0, 0));
     }},
    {"Mount", EPERM,
     [] { return code(::syscall(SYS_mount, "none", "/nonexistent", "tmpfs", 0L, nullptr)); }},
    {"Umount", EPERM, [] { return code(::syscall(SYS_umount2, "/nonexistent", 0)); }},
    {"Fsopen", EPERM, [] { return code(::syscall(SYS_fsopen, "tmpfs", 1)); }},
    {"OpenTree", EPERM, [] { return code(::syscall(SYS_open_tree, AT_FDCWD, "/", 0x80001U)); }},
    {"OpenByHandle", EPERM,
     [] { return code(::syscall(SYS_open_by_handle_at, AT_FDCWD, nullptr, 0)); }},
    {"Chroot", EPERM, [] { return code(::chroot("/")); }},
    {"KernelLog", EPERM, [] { return code(::syscall(SYS_syslog, 10, nullptr, 0)); }},
    {"Fanotify", EPERM, [] { return code(::syscall(SYS_fanotify_init, 0, O_RDONLY)); }},
    {"Swapon", EPERM, [] { return code(::syscall(SYS_swapon, "/nonexistent", 0)); }},
    {"ProcessAccounting", EPERM, [] { return code(::syscall(SYS_acct, "/nonexistent")); }},
    {"Quotactl", EPERM, [] { return code(::syscall(SYS_quotactl, 0x80000100U, nullptr, 0, 0)); }},
    {"SettingAClock", EPERM, [] { return code(::syscall(SYS_clock_settime, 99, nullptr)); }},
    {"Reboot", EPERM, [] { return code(::syscall(SYS_reboot, 1, 2, 3, nullptr)); }},
    {"Hostname", EPERM, [] { return code(::syscall(SYS_sethostname, nullptr, 100000L)); }},
    {"SwitchingOffAddressRandomisation", EPERM,
     [] { return code(::syscall(SYS_personality, 0x0040000UL)); }},
    {"DeviceNodes", EPERM, device_node},
    {"CreatingASetIdFile", EPERM, set_id_file},
    {"FchmodToSetUid", EPERM, [] { return change_mode(0, 04755); }},
    {"FchmodToSetGid", EPERM, [] { return change_mode(0, 02755); }},
    {"FchmodatToSetUid", EPERM, [] { return change_mode(SYS_fchmodat, 04755); }},
    {"Fchmodat2ToSetUid", EPERM, [] { return change_mode(452, 04755); }},
    {"MemfdSecret", EPERM, [] { return code(::syscall(SYS_memfd_secret, 0)); }},
    {"LoadingAModule", EPERM, [] { return code(::syscall(SYS_init_module, nullptr, 0L, "")); }},
    {"Kexec", EPERM, [] { return code(::syscall(SYS_kexec_load, 0L, 0L, nullptr, ~0L)); }},
};

class SeccompRefuses : public ::testing::TestWithParam<Attempt> {};

}  // namespace

TEST_P(SeccompRefuses, WhatWorksWithoutIt)
{
    const Attempt& attempt = GetParam();
    const ExitStatus control = under(Ring::none, attempt.body);
    ASSERT_EQ(control.signal, 0);
    if (control.code == EPERM || control.code == ENOSYS)
        SKIP_VACUOUS(std::string(attempt.name) +
                     " fails without the filter too: " + ::strerror(control.code));
    EXPECT_EQ(under(Ring::standard, attempt.body).code, attempt.expected);
    EXPECT_EQ(under(Ring::strict, attempt.body).code, attempt.expected);
}

INSTANTIATE_TEST_SUITE_P(Calls, SeccompRefuses, ::testing::ValuesIn(kAttempts),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(SeccompKernel, LetsTheHarmlessFormsThrough)
{
    const auto harmless = [] {
        if (change_mode(0, 0755) != 0) return 1;
        if (::syscall(SYS_personality, 0xffffffffUL) < 0) return 2;
        const long pid = ::syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L);
        if (pid == 0) ::_exit(0);
        if (pid < 0) return 3;
        return ::open("/dev/null", O_RDONLY | O_CLOEXEC) < 0 ? 4 : 0;
    };
    EXPECT_EQ(under(Ring::standard, harmless), (ExitStatus{0, 0, false}));
    EXPECT_EQ(under(Ring::strict, harmless), (ExitStatus{0, 0, false}));
}

TEST(SeccompKernel, LooksAtTheModeOfAnOpenOnlyWhenItCreates)
{
    // Garbage in the mode register of a plain open is legal and must not fail.
    EXPECT_EQ(
        under(Ring::standard,
              [] { return code(::syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY, 07777)); })
            .code,
        0);
}

#if defined(__x86_64__)
TEST(SeccompKernel, KillsA32BitCall)
{
    const auto call = [] {
        long result = 20;  // getpid of i386
        __asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
        return result > 0 ? 0 : 1;
    };
    const ExitStatus control = under(Ring::none, call);
    if (control.signal != 0 || control.code != 0)
        SKIP_VACUOUS("int 0x80 does not work on this kernel at all");
    EXPECT_EQ(under(Ring::standard, call).signal, SIGSYS);
    EXPECT_EQ(under(Ring::strict, call).signal, SIGSYS);
}

TEST(SeccompKernel, KillsAnX32Call)
{
    const auto call = [] { return code(::syscall(0x40000000L + SYS_getpid)); };
    EXPECT_EQ(under(Ring::none, call).signal, 0);
    EXPECT_EQ(under(Ring::standard, call).signal, SIGSYS);
}
#endif

TEST(SeccompKernel, RefusesTypingIntoATerminalWhateverTheHighBits)
{
    const auto push = [](Ring ring, unsigned long high) {
        return in_child([=] {
            ::setsid();
            const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
            if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0) return 201;
            const int slave = ::open(::ptsname(master), O_RDWR);
            if (slave < 0) return 202;
            ::ioctl(slave, TIOCSCTTY, 0);
            enter(ring);
            return code(::syscall(SYS_ioctl, slave, high | TIOCSTI, "x"));
        });
    };
    const ExitStatus control = push(Ring::none, 0);
    if (control.code != 0)
        SKIP_VACUOUS(std::string("TIOCSTI fails without the filter: ") + ::strerror(control.code));
    EXPECT_EQ(push(Ring::none, 0xabcdUL << 32).code, 0);  // the kernel ignores the high half
    for (const unsigned long high : {0UL, 1UL << 32, 0xffffffffUL << 32}) {
        EXPECT_EQ(push(Ring::standard, high).code, EPERM);
        EXPECT_EQ(push(Ring::strict, high).code, EPERM);
    }
}

TEST(SeccompKernel, OpensSocketsOfTheListedFamiliesOnly)
{
    const auto open = [](Ring ring, int family, int protocol) {
        return under(ring, [=] { return code(::socket(family, SOCK_DGRAM, protocol)); }).code;
    };
    for (int family = 0; family < 64; ++family) {
        const bool standard = family == AF_UNIX || family == AF_INET || family == AF_INET6 ||
                              family == AF_NETLINK;
        const int control = open(Ring::none, family, 0);
        EXPECT_EQ(open(Ring::standard, family, 0), standard ? control : EPERM) << family;
        EXPECT_EQ(open(Ring::strict, family, 0), family == AF_UNIX ? control : EPERM) << family;
    }
    // Netlink for routes only: NETLINK_GENERIC is 16, NETLINK_NETFILTER 12.
    for (const int protocol : {1, 4, 9, 12, 15, 16})
        EXPECT_EQ(open(Ring::standard, AF_NETLINK, protocol), EPERM) << protocol;
}

TEST(SeccompKernel, StaysInForceAfterForkAndCannotBeTakenOff)
{
    const auto status = under(Ring::standard, [] {
        const pid_t pid = ::fork();
        if (pid == 0) ::_exit(code(::unshare(CLONE_NEWUSER)) == EPERM ? 0 : 1);
        int result = -1;
        ::waitpid(pid, &result, 0);
        return WIFEXITED(result) ? WEXITSTATUS(result) : 255;
    });
    EXPECT_EQ(status.code, 0);
}

TEST(SeccompLoad, RefusesAnEmptyProgram) { EXPECT_EQ(load({}), EINVAL); }

}  // namespace sandbox::sys::seccomp
