// SPDX-License-Identifier: Apache-2.0
// usage: attacker PROBE[=ARGUMENT]...
//
// Tries one way out per probe, each in a child of its own, and prints "name: result errno":
// "done 0", "refused ERRNO" or "killed SIGNAL". It runs twice: inside a sandbox, and as a positive
// control outside, where it must succeed; so each probe is harmless where it succeeds.
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

// Where a static program that is not position-independent begins, ld(1).
constexpr unsigned long kTextBase = 0x400000;
constexpr long kSocketcall32 = 102;  // arch/x86/entry/syscalls/syscall_32.tbl
constexpr long kGetpid32 = 20;
constexpr long kX32Bit = 0x40000000;

template <class... Args>
long call(long number, Args... args)
{
    return syscall(number, args...);
}

long int80(long number, long first, const void* second)
{
    long result = 0;
    // The 32-bit entry sees 32-bit registers only: what it points to must lie low.
    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(number), "b"(first), "c"(second)
                     : "memory", "r8", "r9", "r10", "r11");
    if (result < 0 && result > -4096) {
        errno = static_cast<int>(-result);
        return -1;
    }
    return result;
}

pid_t pid_of(const std::string& argument)
{
    return argument.empty() ? 1 : static_cast<pid_t>(std::atol(argument.c_str()));
}

long in_child_namespace(unsigned long flags)
{
    const long child = call(SYS_clone, flags | SIGCHLD, 0L, 0L, 0L, 0L);
    if (child == 0) _exit(0);
    return child;
}

long clone3_plain()
{
    std::array<unsigned long, 8> arguments{};
    arguments[4] = SIGCHLD;
    const long child = call(SYS_clone3, arguments.data(), sizeof arguments);
    if (child == 0) _exit(0);
    return child;
}

long bpf_map()
{
    union bpf_attr attributes;
    std::memset(&attributes, 0, sizeof attributes);
    attributes.map_type = BPF_MAP_TYPE_ARRAY;
    attributes.key_size = 4;
    attributes.value_size = 4;
    attributes.max_entries = 1;
    return call(SYS_bpf, static_cast<long>(BPF_MAP_CREATE), &attributes, sizeof attributes);
}

long perf_open()
{
    perf_event_attr attributes{};
    attributes.type = PERF_TYPE_SOFTWARE;
    attributes.size = sizeof attributes;
    attributes.config = PERF_COUNT_SW_TASK_CLOCK;
    return call(SYS_perf_event_open, &attributes, 0L, -1L, -1L, 0L);
}

long read_memory_of(pid_t pid)
{
    std::array<char, 4> bytes{};
    iovec local{bytes.data(), bytes.size()};
    iovec remote{reinterpret_cast<void*>(kTextBase), bytes.size()};
    return process_vm_readv(pid, &local, 1, &remote, 1, 0);
}

long take_descriptor_of(pid_t pid)
{
    const long process = call(SYS_pidfd_open, static_cast<long>(pid), 0L);
    if (process < 0) return process;
    return call(SYS_pidfd_getfd, process, 0L, 0L);
}

long open_by_handle(const std::string& path)
{
    alignas(file_handle) std::array<unsigned char, sizeof(file_handle) + MAX_HANDLE_SZ> room{};
    auto* handle = reinterpret_cast<file_handle*>(room.data());
    handle->handle_bytes = MAX_HANDLE_SZ;
    int mount_id = 0;
    if (name_to_handle_at(AT_FDCWD, path.c_str(), handle, &mount_id, 0) != 0) return -1;
    const int mount = open(path.c_str(), O_RDONLY);
    return mount < 0 ? -1 : open_by_handle_at(mount, handle, O_RDONLY);
}

long connect_abstract(const std::string& name)
{
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(),
                std::min(name.size(), sizeof address.sun_path - 1));
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return fd < 0 ? -1 : connect(fd, reinterpret_cast<const sockaddr*>(&address), size);
}

// The family behind a pointer, where a filter cannot look.
long socketcall(int family)
{
    void* low = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT,
                     -1, 0);
    if (low == MAP_FAILED) return -1;
    const int type = family == AF_NETLINK ? SOCK_RAW : SOCK_STREAM;
    const std::array<int, 3> arguments{family, type, 0};
    std::memcpy(low, arguments.data(), sizeof arguments);
    return int80(kSocketcall32, 1, low);
}

long set_id_file(const std::string& path, bool by_descriptor)
{
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT, 0755);
    if (fd < 0) return fd;
    return by_descriptor ? fchmod(fd, 04755) : chmod(path.c_str(), 04755);
}

long type_into_terminal(unsigned long request)
{
    char letter = '#';
    return call(SYS_ioctl, 0L, request, &letter);
}

long numbered(std::string_view text) { return std::strtol(std::string(text).c_str(), nullptr, 0); }

struct Probe {
    const char* name;
    long (*attempt)(const std::string& argument);
};

#define PROBE(name, expression)                  \
    Probe                                        \
    {                                            \
        name, [](const std::string& a) -> long { \
            static_cast<void>(a);                \
            return expression;                   \
        }                                        \
    }

const std::array kProbes{
    PROBE("mount", mount("none", "/mnt", "tmpfs", 0, "")),
    PROBE("mount-proc", mount("none", "/mnt", "proc", 0, "")),
    PROBE("mount-cgroup", mount("none", "/mnt", "cgroup2", 0, "")),
    PROBE("umount", umount2(a.c_str(), MNT_DETACH)),
    PROBE("remount", mount(nullptr, a.c_str(), nullptr, MS_REMOUNT | MS_BIND, nullptr)),
    PROBE("fsopen", call(SYS_fsopen, "tmpfs", 0L)),
    PROBE("open-tree", call(SYS_open_tree, static_cast<long>(AT_FDCWD), "/usr", 1L)),
    PROBE("mount-setattr", ([](const std::string& path) {
              std::array<unsigned long, 4> attributes{};
              attributes[1] = 1;  // attr_clr: MOUNT_ATTR_RDONLY
              return call(SYS_mount_setattr, static_cast<long>(AT_FDCWD), path.c_str(), 0L,
                          attributes.data(), sizeof attributes);
          })(a)),
    PROBE("chroot", chroot("/usr")),
    PROBE("unshare-user", unshare(CLONE_NEWUSER)),
    PROBE("unshare-mount", unshare(CLONE_NEWNS)),
    PROBE("unshare-net", unshare(CLONE_NEWNET)),
    PROBE("clone-user", in_child_namespace(CLONE_NEWUSER)),
    PROBE("clone-pid", in_child_namespace(CLONE_NEWPID)),
    PROBE("clone3", clone3_plain()),
    PROBE("setns", setns(open("/proc/self/ns/uts", O_RDONLY), 0)),
    PROBE("bpf", bpf_map()),
    PROBE("io-uring", ([] {
              std::array<char, 256> parameters{};
              return call(SYS_io_uring_setup, 1L, parameters.data());
          })()),
    PROBE("keyctl", call(SYS_keyctl, static_cast<long>(KEYCTL_JOIN_SESSION_KEYRING), 0L)),
    PROBE("add-key", call(SYS_add_key, "user", "sandbox-attacker", "x", 1L,
                          static_cast<long>(KEY_SPEC_PROCESS_KEYRING))),
    PROBE("perf", perf_open()),
    PROBE("userfaultfd", call(SYS_userfaultfd, 0L)),
    PROBE("ptrace", ptrace(static_cast<__ptrace_request>(PTRACE_SEIZE), pid_of(a), 0, 0)),
    PROBE("memory", read_memory_of(pid_of(a))),
    PROBE("pidfd-getfd", take_descriptor_of(pid_of(a))),
    PROBE("kcmp",
          call(SYS_kcmp, static_cast<long>(getpid()), static_cast<long>(pid_of(a)), 1L, 0L, 0L)),
    PROBE("signal", kill(pid_of(a), 0)),
    PROBE("executable", open(("/proc/" + a + "/exe").c_str(), O_RDONLY)),
    PROBE("root-of", open(("/proc/" + a + "/root").c_str(), O_RDONLY)),
    PROBE("int80", int80(kGetpid32, 0, nullptr)),
    PROBE("x32", call(kX32Bit + SYS_getpid)),
    PROBE("socketcall", socketcall(static_cast<int>(numbered(a)))),
    PROBE("socket", ([](const std::string& text) -> long {
              char* rest = nullptr;
              const auto family = static_cast<int>(std::strtol(text.c_str(), &rest, 10));
              const auto type = static_cast<int>(std::strtol(rest + 1, &rest, 10));
              return socket(family, type, *rest == ',' ? std::atoi(rest + 1) : 0);
          })(a)),
    PROBE("tiocsti", type_into_terminal(TIOCSTI)),
    PROBE("tiocsti-high", type_into_terminal(TIOCSTI | 1UL << 32)),
    PROBE("tiocsti-higher", type_into_terminal(TIOCSTI | 1UL << 63)),
    PROBE("abstract", connect_abstract(a)),
    PROBE("set-id", set_id_file(a, false)),
    PROBE("set-id-fd", set_id_file(a, true)),
    PROBE("set-id-open", open(a.c_str(), O_WRONLY | O_CREAT | O_EXCL, 04755)),
    PROBE("mknod", mknod(a.c_str(), S_IFCHR | 0666, makedev(1, 3))),
    PROBE("handle", open_by_handle(a)),
    PROBE("write", open(a.c_str(), O_WRONLY)),
    PROBE("read", open(a.c_str(), O_RDONLY)),
    PROBE("make", open(a.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644)),
    PROBE("make-folder", mkdir(a.c_str(), 0755)),
    PROBE("make-link", symlink("/etc", a.c_str())),
    PROBE("delete", unlink(a.c_str())),
    PROBE("become-root", setuid(0)),
    PROBE("drop-groups", call(SYS_setgroups, 0L, nullptr)),
    PROBE("syslog", call(SYS_syslog, 10L, nullptr, 0L)),  // 10: size of the buffer
    PROBE("swapon", call(SYS_swapon, a.c_str(), 0L)),
    PROBE("iopl", call(SYS_iopl, 0L)),
    PROBE("hostname", sethostname("attacked", 8)),
    PROBE("fanotify", call(SYS_fanotify_init, 0L, 0L)),
    PROBE("memfd", call(SYS_memfd_create, "x", 0L)),
    PROBE("getpid", call(SYS_getpid)),
    PROBE("euid-is-root", geteuid() == 0 ? 0 : (errno = EPERM, -1)),
};

void report(const std::string& word, const Probe& probe, const std::string& argument)
{
    const pid_t child = fork();
    if (child == 0) {
        errno = 0;
        const long result = probe.attempt(argument);
        _exit(result < 0 ? errno : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        std::printf("%s: killed %d\n", word.c_str(), WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0)
        std::printf("%s: refused %d\n", word.c_str(), WEXITSTATUS(status));
    else
        std::printf("%s: done 0\n", word.c_str());
    std::fflush(stdout);
}

void list_descriptors()
{
    constexpr int kMost = 4096;
    for (int fd = 0; fd < kMost; ++fd) {
        std::array<char, 4096> target{};
        const std::string link = "/proc/self/fd/" + std::to_string(fd);
        if (fcntl(fd, F_GETFD) < 0) continue;
        const ssize_t length = readlink(link.c_str(), target.data(), target.size() - 1);
        std::printf("fd %d %s\n", fd, length < 0 ? "?" : target.data());
    }
}

// Something to attack, for the positive controls: says when it is ready, ends with its input.
int be_a_target()
{
    std::puts("ready");
    std::fflush(stdout);
    char byte = 0;
    while (read(0, &byte, 1) > 0) {}
    return 0;
}

}  // namespace

int main(int argc, char** argv)
{
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const auto equals = word.find('=');
        const std::string name = word.substr(0, equals);
        const std::string argument = equals == std::string::npos ? "" : word.substr(equals + 1);
        if (name == "target") return be_a_target();
        if (name == "descriptors") {
            list_descriptors();
            continue;
        }
        const Probe* found = nullptr;
        for (const Probe& probe : kProbes) {
            if (name == probe.name) found = &probe;
        }
        if (found == nullptr) {
            std::printf("%s: unknown 0\n", word.c_str());
            return 2;
        }
        report(word, *found, argument);
    }
    return 0;
}
