// SPDX-License-Identifier: Apache-2.0
#include "sys/seccomp/rules.hpp"

#include <algorithm>

// Numbers are spelled out, not taken from this host's headers: the table must read the same on
// every build host. Sources: include/uapi/{linux,asm-generic}/*.h, the same on both architectures.
namespace sandbox::sys::seccomp {

namespace {

// What every program may do whatever its arguments: files by name and descriptor, memory, time,
// signals, threads, pipes and sockets already made. Chosen by running bash, busybox, coreutils,
// gcc, git, curl, python3 and node (see tests/unit/sys/seccomp_programs_test.cpp).
constexpr std::string_view kCommon =
    "accept accept4 access alarm arch_prctl bind brk capget capset chdir chown clock_getres "
    "clock_gettime clock_nanosleep close close_range connect copy_file_range dup dup2 dup3 "
    "epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 "
    "execve execveat exit exit_group faccessat faccessat2 fadvise64 fallocate fchdir fchown "
    "fchownat fcntl fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat "
    "fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv futex_wake futimesat "
    "get_robust_list getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups getitimer "
    "getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid "
    "getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr "
    "inotify_add_watch inotify_init inotify_init1 inotify_rm_watch kill landlock_add_rule "
    "landlock_create_ruleset landlock_restrict_self lchown lgetxattr link linkat listen listxattr "
    "llistxattr lremovexattr lseek lsetxattr lstat madvise map_shadow_stack membarrier "
    "memfd_create mincore mkdir mkdirat mlock mlock2 mlockall mmap mprotect mremap mseal msync "
    "munlock munlockall munmap nanosleep newfstatat pause pidfd_open pidfd_send_signal pipe pipe2 "
    "pkey_alloc pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2 prlimit64 "
    "pselect6 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv recvfrom "
    "recvmmsg recvmsg removexattr rename renameat renameat2 restart_syscall rmdir rseq "
    "rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend "
    "rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min "
    "sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval "
    "sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield select "
    "sendfile sendmmsg sendmsg sendto set_robust_list set_tid_address setfsgid setfsuid setgid "
    "setgroups setitimer setpgid setpriority setregid setresgid setresuid setreuid setrlimit "
    "setsid setsockopt setuid setxattr shutdown sigaltstack signalfd signalfd4 splice stat statfs "
    "statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create "
    "timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime "
    "timerfd_settime times tkill truncate umask uname unlink unlinkat utime utimensat utimes "
    "vfork vmsplice wait4 waitid write writev";

// What databases, NUMA-aware runtimes and nested sandboxes want and a locked-down tool does not.
constexpr std::string_view kStandardOnly =
    "cachestat get_mempolicy getxattrat io_cancel io_destroy io_getevents io_pgetevents io_setup "
    "io_submit ioprio_get ioprio_set listxattrat mbind mq_getsetattr mq_notify mq_open "
    "mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd process_mrelease "
    "remap_file_pages removexattrat seccomp semctl semget semop semtimedop set_mempolicy "
    "set_mempolicy_home_node setxattrat shmat shmctl shmdt shmget";

// Session children are made by clone3(CLONE_INTO_CGROUP), and files below the grants are opened
// with RESOLVE_BENEATH: PID 1 is ours, its arguments in memory need no look.
constexpr std::string_view kOuterOnly = "clone3 openat2";

// Their arguments lie in memory, out of a filter's sight; every libc falls back on ENOSYS.
constexpr std::string_view kAbsentInside = "clone3 openat2";

constexpr std::uint32_t kAll = 0xffffffffU;
constexpr std::uint32_t kSetIds = 06000;           // S_ISUID | S_ISGID
constexpr std::uint32_t kCreates = 0100 | 020000000;  // O_CREAT, __O_TMPFILE
constexpr std::uint32_t kFileType = 0170000;       // S_IFMT

// CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. NEWTIME (0x80) lies in the
// signal byte of clone and exists for clone3 and unshare only.
constexpr std::uint32_t kNamespaces = 0x7e020000U;

Condition equal(std::uint8_t argument, std::uint32_t value, std::uint32_t mask = kAll)
{
    return Condition{argument, Test::equal, mask, value};
}

Condition any_bit(std::uint8_t argument, std::uint32_t mask)
{
    return Condition{argument, Test::any_bit, mask, 0};
}

std::vector<Match> one_of(std::uint8_t argument, std::initializer_list<std::uint32_t> values,
                          std::uint32_t mask = kAll)
{
    std::vector<Match> matches;
    for (const std::uint32_t value : values) matches.push_back({equal(argument, value, mask)});
    return matches;
}

void add(std::vector<Rule>& rules, std::string_view names, Verdict verdict)
{
    // One space between words: the lists are ours, above.
    while (!names.empty()) {
        const auto end = std::min(names.find(' '), names.size());
        rules.push_back(Rule{names.substr(0, end), verdict, {}});
        names.remove_prefix(std::min(end + 1, names.size()));
    }
}

// Set-id bits: a workload whose files live on a host folder must not leave a set-id program there.
void add_modes(std::vector<Rule>& rules)
{
    const auto unless = [&rules](std::string_view name, Match match) {
        rules.push_back(Rule{name, Verdict::allow_unless, {std::move(match)}});
    };
    unless("chmod", {any_bit(1, kSetIds)});
    unless("fchmod", {any_bit(1, kSetIds)});
    unless("fchmodat", {any_bit(2, kSetIds)});
    unless("fchmodat2", {any_bit(2, kSetIds)});
    unless("creat", {any_bit(1, kSetIds)});
    // The mode argument counts only with these flags; without them a register may hold anything.
    // A mode is a 16-bit value in the kernel, so the low half of the argument is all there is.
    unless("open", {any_bit(1, kCreates), any_bit(2, kSetIds)});
    unless("openat", {any_bit(2, kCreates), any_bit(3, kSetIds)});
    // Regular (0 too), FIFO, socket; never a device, never a set-id bit.
    const auto kinds = {0U, 0100000U, 0010000U, 0140000U};
    const std::uint32_t mask = kFileType | kSetIds;
    rules.push_back(Rule{"mknod", Verdict::allow_only_if, one_of(1, kinds, mask)});
    rules.push_back(Rule{"mknodat", Verdict::allow_only_if, one_of(2, kinds, mask)});
}

void add_sockets(std::vector<Rule>& rules, Profile profile)
{
    // AF_UNIX 1, AF_INET 2, AF_INET6 10. Everything else (AF_VSOCK, AF_ALG, AF_PACKET, …) reaches
    // host-wide or rarely audited kernel code.
    auto families = profile == Profile::strict ? one_of(0, {1U}) : one_of(0, {1U, 2U, 10U});
    rules.push_back(Rule{"socketpair", Verdict::allow_only_if, families});
    // AF_NETLINK 16 with NETLINK_ROUTE 0: getifaddrs() of libc, python and node.
    if (profile != Profile::strict) families.push_back({equal(0, 16), equal(2, 0)});
    rules.push_back(Rule{"socket", Verdict::allow_only_if, std::move(families)});
}

void add_ioctl(std::vector<Rule>& rules, Profile profile)
{
    if (profile != Profile::strict) {
        // TIOCSTI and TIOCLINUX type into a terminal, TIOCCONS takes the console, TIOCSETD loads
        // line disciplines. asm-generic/ioctls.h.
        rules.push_back(
            Rule{"ioctl", Verdict::allow_unless, one_of(1, {0x5412U, 0x541cU, 0x541dU, 0x5423U})});
        return;
    }
    // TCGETS, TCSETS(W|F), TCSBRK, TCXONC, TCFLSH, TIOCSCTTY, TIOC(G|S)PGRP, TIOCOUTQ,
    // TIOC(G|S)WINSZ, FIONREAD, FIONBIO, TIOCNOTTY, TIOCGSID, TIOCGPTPEER, FIO(N)CLEX, then the
    // encoded ones: TC(G|S)ETS2, TCSETSW2, TCSETSF2, TIOCGPTN, TIOCSPTLCK, FICLONE.
    rules.push_back(Rule{
        "ioctl", Verdict::allow_only_if,
        one_of(1, {0x5401U,     0x5402U,     0x5403U,     0x5404U,     0x5409U,     0x540aU,
                   0x540bU,     0x540eU,     0x540fU,     0x5410U,     0x5411U,     0x5413U,
                   0x5414U,     0x541bU,     0x5421U,     0x5422U,     0x5429U,     0x5441U,
                   0x5450U,     0x5451U,     0x802c542aU, 0x402c542bU, 0x402c542cU, 0x402c542dU,
                   0x80045430U, 0x40045431U, 0x40049409U})});
}

std::vector<Rule> build(Profile profile)
{
    // By concern; sorted at the end, because the digest is of the sorted text.
    std::vector<Rule> rules;
    add(rules, kCommon, Verdict::allow);
    if (profile != Profile::strict) add(rules, kStandardOnly, Verdict::allow);
    if (profile == Profile::outer)
        add(rules, kOuterOnly, Verdict::allow);
    else
        add(rules, kAbsentInside, Verdict::no_such_call);
    add_modes(rules);
    add_sockets(rules, profile);
    add_ioctl(rules, profile);
    rules.push_back(Rule{"clone", Verdict::allow_unless, {{any_bit(0, kNamespaces)}}});
    // PER_LINUX and the query; anything else switches mitigations off (ADDR_NO_RANDOMIZE, …).
    rules.push_back(Rule{"personality", Verdict::allow_only_if, one_of(0, {0U, kAll})});
    std::sort(rules.begin(), rules.end(),
              [](const Rule& one, const Rule& other) { return one.syscall < other.syscall; });
    return rules;
}

std::string hexadecimal(std::uint32_t value)
{
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    do {
        text.insert(text.begin(), digits[value & 15U]);
        value >>= 4;
    } while (value != 0);
    return "0x" + text;
}

std::string text_of(const Match& match)
{
    std::string text;
    for (const Condition& condition : match) {
        if (!text.empty()) text += " and ";
        text += "arg" + std::to_string(condition.argument) + " & " + hexadecimal(condition.mask);
        text += condition.test == Test::equal ? " == " + hexadecimal(condition.value) : " != 0x0";
    }
    return text;
}

std::string_view text_of(Verdict verdict)
{
    switch (verdict) {
    case Verdict::allow: return "allow";
    case Verdict::allow_only_if: return "allow-only-if";
    case Verdict::allow_unless: return "allow-unless";
    case Verdict::no_such_call: return "enosys";
    }
    return "enosys";
}

bool matches(const Rule& rule, std::span<const std::uint64_t, 6> arguments)
{
    return std::any_of(rule.matches.begin(), rule.matches.end(), [&](const Match& match) {
        return std::all_of(match.begin(), match.end(), [&](const Condition& condition) {
            return holds(condition, arguments[condition.argument]);
        });
    });
}

}  // namespace

std::string_view to_string(Profile profile) noexcept
{
    switch (profile) {
    case Profile::outer: return "outer";
    case Profile::standard: return "default";
    case Profile::strict: return "strict";
    }
    return "strict";
}

std::string_view to_string(Arch arch) noexcept
{
    return arch == Arch::x86_64 ? "x86_64" : "aarch64";
}

std::uint32_t audit_arch(Arch arch) noexcept
{
    // linux/audit.h: EM_X86_64 62 and EM_AARCH64 183 with the 64-bit and little-endian marks.
    return arch == Arch::x86_64 ? 0xc000003eU : 0xc00000b7U;
}

std::optional<Arch> native_arch() noexcept
{
#if defined(__x86_64__)
    return Arch::x86_64;
#elif defined(__aarch64__)
    return Arch::aarch64;
#else
    return std::nullopt;
#endif
}

bool holds(const Condition& condition, std::uint64_t argument) noexcept
{
    const std::uint32_t masked = static_cast<std::uint32_t>(argument) & condition.mask;
    return condition.test == Test::equal ? masked == condition.value : masked != 0;
}

const std::vector<Rule>& rules(Profile profile)
{
    // Built once: every launch asks, and the text must be the same.
    static const std::vector<Rule> outer = build(Profile::outer);
    static const std::vector<Rule> standard = build(Profile::standard);
    static const std::vector<Rule> strict = build(Profile::strict);
    if (profile == Profile::outer) return outer;
    return profile == Profile::standard ? standard : strict;
}

// Kept apart from compile(): the two are written independently and compared by a test.
Answer answer(std::span<const Rule> rules, Arch arch, std::uint32_t audit, int number,
              std::span<const std::uint64_t, 6> arguments)
{
    if (audit != audit_arch(arch)) return Answer::kill;
    // Bit 30 marks x32 (asm/unistd.h, __X32_SYSCALL_BIT); bit 31 makes a number that cannot be.
    if (arch == Arch::x86_64 && (static_cast<unsigned>(number) & 0xc0000000U) != 0)
        return Answer::kill;
    if (number < 0 || number > last_known_number(arch)) return Answer::enosys;
    const std::string_view name = syscall_name(number, arch);
    const auto rule = std::find_if(rules.begin(), rules.end(),
                                   [name](const Rule& one) { return one.syscall == name; });
    if (name.empty() || rule == rules.end()) return Answer::eperm;
    switch (rule->verdict) {
    case Verdict::allow: return Answer::allow;
    case Verdict::no_such_call: return Answer::enosys;
    case Verdict::allow_only_if: return matches(*rule, arguments) ? Answer::allow : Answer::eperm;
    case Verdict::allow_unless: return matches(*rule, arguments) ? Answer::eperm : Answer::allow;
    }
    return Answer::eperm;
}

std::string canonical_text(Profile profile)
{
    std::string text = "seccomp rules 1\nforeign-architecture kill-process\nunlisted eperm\n"
                       "unknown-number enosys\n";
    for (const Rule& rule : rules(profile)) {
        text += std::string(rule.syscall) + " " + std::string(text_of(rule.verdict));
        for (std::size_t at = 0; at < rule.matches.size(); ++at)
            text += (at == 0 ? " " : " or ") + text_of(rule.matches[at]);
        text += "\n";
    }
    return text;
}

}  // namespace sandbox::sys::seccomp
