// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "sys/caps.hpp"

// A program that is lost: says on its standard output what it could still do, one "name value" a
// line, a failure as the errno's name. With "stay" it then waits for ever.
namespace {

void say(const char* name, const std::string& value)
{
    const std::string line = std::string(name) + " " + value + "\n";
    if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) _exit(2);
}

std::string outcome(long result) { return result >= 0 ? "ok" : strerrorname_np(errno); }

std::string opened(const char* path, int flags) { return outcome(::open(path, flags, 0600)); }

std::string capabilities()
{
    const auto state = sandbox::sys::get_caps();
    if (!state) return "?";
    return std::to_string(state->effective | state->permitted | state->inheritable);
}

std::string bounding()
{
    std::string kept;
    for (int number = 0; ::prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0; ++number)
        if (::prctl(PR_CAPBSET_READ, number, 0, 0, 0) == 1) kept += std::to_string(number) + ",";
    return kept.empty() ? "none" : kept;
}

std::string descriptors()
{
    std::string open;
    for (int fd = 0; fd < 1024; ++fd)
        if (::fcntl(fd, F_GETFD) >= 0) open += std::to_string(fd) + ",";
    return open;
}

std::string processes()
{
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    return outcome(child);
}

std::string threads()
{
    int ran = 0;
    std::thread([&ran] { ran = 1; }).join();
    return ran == 1 ? "ok" : "no";
}

std::string core_limit()
{
    rlimit limit{};
    if (::getrlimit(RLIMIT_CORE, &limit) != 0) return "?";
    return std::to_string(limit.rlim_max);
}

void probe()
{
    say("uid", std::to_string(::getuid()));
    say("gid", std::to_string(::getgid()));
    say("groups", std::to_string(::getgroups(0, nullptr)));
    say("pid", std::to_string(::getpid()));
    say("parent", std::to_string(::getppid()));
    say("capabilities", capabilities());
    say("bounding", bounding());
    say("no_new_privs", std::to_string(::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)));
    say("seccomp", std::to_string(::prctl(PR_GET_SECCOMP, 0, 0, 0, 0)));
    say("core", core_limit());
    say("descriptors", descriptors());
    say("environment", environ == nullptr || *environ == nullptr ? "empty" : *environ);
    say("given", opened("/given", O_RDONLY));
    say("given-write", opened("/given", O_WRONLY));
    say("passwd", opened("/etc/passwd", O_RDONLY));
    say("proc", opened("/proc/self/status", O_RDONLY));
    say("sys", opened("/sys/kernel", O_RDONLY));
    say("root", opened("/", O_RDONLY | O_DIRECTORY));
    say("up", opened("/../etc/passwd", O_RDONLY));
    say("create", opened("/made", O_WRONLY | O_CREAT));
    say("fork", processes());
    say("thread", threads());
    say("inet", outcome(::socket(AF_INET, SOCK_STREAM, 0)));
    say("unix", outcome(::socket(AF_UNIX, SOCK_STREAM, 0)));
    say("vsock", outcome(::socket(AF_VSOCK, SOCK_STREAM, 0)));
    say("unshare", outcome(::unshare(CLONE_NEWUSER)));
    say("mount", outcome(::mount("none", "/", "tmpfs", 0, nullptr)));
    say("chroot", outcome(::chroot("/")));
    say("setuid", outcome(::setuid(0)));
    say("setgroups", outcome(::syscall(SYS_setgroups, 0, nullptr)));
    say("ptrace", outcome(::ptrace(PTRACE_ATTACH, 1, nullptr, nullptr)));
    say("keyctl", outcome(::syscall(SYS_keyctl, 0, -3, 0)));
    say("bpf", outcome(::syscall(SYS_bpf, 0, nullptr, 0)));
    say("io_uring", outcome(::syscall(SYS_io_uring_setup, 1, nullptr)));
    // PID 1 of the namespace ignores it, and is another user.
    say("kill", outcome(::kill(1, SIGKILL)));
}

}  // namespace

// Of the sanitizer, where there is one: it looks for leaks by ptrace, which the jail refuses, and would
// turn that into an exit status of its own.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }

int main(int argc, char** argv)
{
    const std::string what = argc > 1 ? argv[1] : "";
    if (what == "exit") return 7;
    if (what == "crash") ::raise(SIGKILL);
    probe();
    say("end", "reached");
    if (what == "stay")
        while (true) ::pause();
    return 0;
}
