// SPDX-License-Identifier: Apache-2.0
// Runs as PID 1 of a box and says on stdout, one "name=value" a line, what it sees and what it is
// let do. Every attempt is one that succeeds for an unconfined root: see the test's control run.
#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

void say(const char* name, const std::string& value)
{
    std::printf("%s=%s\n", name, value.c_str());
}

void say_try(const char* name, bool done) { say(name, done ? "done" : std::strerror(errno)); }

std::string listing(const char* path)
{
    std::vector<std::string> names;
    if (DIR* folder = ::opendir(path)) {
        while (const dirent* entry = ::readdir(folder))
            if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
        ::closedir(folder);
    }
    std::sort(names.begin(), names.end());
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
    return text;
}

std::string first_bytes(const char* path)
{
    char bytes[64];
    const int file = ::open(path, O_RDONLY);
    if (file < 0) return std::strerror(errno);
    const ssize_t got = ::read(file, bytes, sizeof bytes);
    return got < 0 ? std::strerror(errno) : std::to_string(got);
}

std::string descriptors()
{
    std::string text;
    for (int fd = 0; fd < 256; ++fd)
        if (::fcntl(fd, F_GETFD) >= 0) text += (text.empty() ? "" : ",") + std::to_string(fd);
    return text;
}

bool loopback_is_up()
{
    const int socket = ::socket(AF_INET, SOCK_DGRAM, 0);
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    return ::ioctl(socket, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) != 0;
}

bool write_null()
{
    const int file = ::open("/dev/null", O_WRONLY);
    return file >= 0 && ::write(file, "x", 1) == 1;
}

}  // namespace

extern char** environ;

int main()
{
    say("descriptors", descriptors());
    say("pid", std::to_string(::getpid()));
    say("uid", std::to_string(::getuid()) + ":" + std::to_string(::getgid()));
    say("groups", std::to_string(::getgroups(0, nullptr)));
    char host[65] = {};
    ::gethostname(host, sizeof host - 1);
    say("hostname", host);
    say("root", listing("/"));
    say("dev", listing("/dev"));
    say("environment", *environ == nullptr ? "empty" : "not empty");
    char cwd[64] = {};
    say("cwd", ::getcwd(cwd, sizeof cwd) != nullptr ? cwd : "?");
    say("loopback", loopback_is_up() ? "up" : "down");
    say("keys", first_bytes("/proc/keys"));
    say("no_new_privs", std::to_string(::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)));
    say_try("null", write_null());
    say_try("sysctl", ::open("/proc/sys/kernel/pid_max", O_WRONLY) >= 0);
    say_try("mount", ::mount("none", "/dev/shm", "tmpfs", 0, nullptr) == 0);
    say_try("mknod", ::mknod("/dev/shm/disk", S_IFBLK | 0600, 0) == 0);
    say_try("sethostname", ::sethostname("owned", 5) == 0);
    say_try("chroot", ::chroot("/dev") == 0);
    return 0;
}
