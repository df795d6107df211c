// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe/subordinate.hpp"
#include "probe/tasks.hpp"
#include "sys/fd.hpp"
#include "sys/file.hpp"
#include "sys/process.hpp"
#include "sys/procfs.hpp"

namespace sandbox::probe {

namespace {

namespace name = facts::name;

constexpr std::uint32_t kRange = 65536;  // one sandbox: a complete map of 16-bit ids

struct Kind {
    std::string_view fact;
    const char* file;  // below /proc/PID/ns
    int flag;
};
constexpr std::array<Kind, 7> kKinds{{{name::kUserNamespace, "user", CLONE_NEWUSER},
                                      {name::kMountNamespace, "mnt", CLONE_NEWNS},
                                      {name::kPidNamespace, "pid", CLONE_NEWPID},
                                      {name::kIpcNamespace, "ipc", CLONE_NEWIPC},
                                      {name::kUtsNamespace, "uts", CLONE_NEWUTS},
                                      {name::kNetNamespace, "net", CLONE_NEWNET},
                                      {name::kCgroupNamespace, "cgroup", CLONE_NEWCGROUP}}};

int all_flags()
{
    int flags = 0;
    for (const Kind& kind : kKinds) flags |= kind.flag;
    return flags;
}

// The sleeper stands in the new namespaces until it reads a byte; then it says whether the id map
// that was written meanwhile makes it root there and PID 1.
[[noreturn]] void sleep_inside(int go)
{
    char byte = 0;
    if (read(go, &byte, 1) != 1) _exit(3);
    // Not before the map is written: without it every id is the overflow id.
    if (setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0) _exit(4);
    _exit(getuid() == 0 && getpid() == 1 ? EXIT_SUCCESS : 5);
}

// Which of the kernel's switches keep user namespaces from an ordinary user, in words; empty: none.
std::string forbidding_sysctls()
{
    struct Switch {
        const char* path;
        const char* forbids;  // the value that does
    };
    // user_namespaces(7); the second is Debian's and Ubuntu's own, the third AppArmor's.
    constexpr std::array<Switch, 3> kSwitches{
        {{"/proc/sys/user/max_user_namespaces", "0\n"},
         {"/proc/sys/kernel/unprivileged_userns_clone", "0\n"},
         {"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n"}}};
    std::string text;
    for (const Switch& one : kSwitches) {
        const auto value = sys::read_file(one.path, 64);
        if (!value || *value != one.forbids) continue;
        text += fmt::format("; {} is {}", one.path, value->substr(0, value->size() - 1));
    }
    return text;
}

// Each kind alone, to name the one that fails.
// Slow, and only where the usual way failed.
void report_one_by_one(const Reporter& out, const Error& error)
{
    for (const Kind& kind : kKinds) {
        // In a process of its own: unsharing cannot be taken back.
        const int status = in_process([&] {
            return unshare(kind.flag) == 0 ? 0 : errno;  // errno values fit an exit status
        });
        if (status == 0) {
            out.report(kind.fact, found("yes", fmt::format("unshare alone works; all at once: {}",
                                                           error.message())));
        } else {
            errno = status;
            const std::string what = errno_text(fmt::format("unshare ({})", kind.file));
            out.report(kind.fact, missing(what + forbidding_sysctls()));
        }
    }
}

void compare_inodes(const Reporter& out, const sys::ProcDir& inside)
{
    const auto self = sys::ProcDir::self();
    for (const Kind& kind : kKinds) {
        const auto mine = self ? self->namespace_inode(kind.file) : Result<std::uint64_t>(0);
        const auto other = inside.namespace_inode(kind.file);
        if (!mine || !other) {
            out.report(kind.fact,
                       missing(!mine ? mine.error().message() : other.error().message()));
        } else if (*mine == *other) {
            out.report(kind.fact, missing(fmt::format("clone3 gave the same inode {}", *mine)));
        } else {
            out.report(kind.fact, found("yes", fmt::format("clone3 made {}:[{}], ours is [{}]",
                                                           kind.file, *other, *mine)));
        }
    }
}

// The map a launch would write: as root our own range, else what the helpers give.
Result<std::string> write_maps(const sys::ProcDir& inside, pid_t pid, const ProbeSettings& settings)
{
    if (geteuid() != 0) {
        const OwnRange range = TRY(own_range(kRange));
        TRY_VOID(map_by_helpers(pid, range));
        return fmt::format("{}:{}", range.users, range.count);
    }
    // Our own range, whole: a map of one id would not show that 65536 are to be had.
    const std::string map = fmt::format("0 {} {}\n", settings.id_base, kRange);
    TRY_VOID(sys::write_control_at(inside.fd(), "uid_map", map));
    TRY_VOID(sys::write_control_at(inside.fd(), "gid_map", map));
    return fmt::format("{}:{}", settings.id_base, std::uint64_t{settings.id_ranges} * kRange);
}

Finding judge_ids(const ProbeSettings& settings, const Result<std::string>& written, int status)
{
    if (!written) return missing("id map: " + written.error().message());
    if (status != EXIT_SUCCESS) {
        return missing(fmt::format("root of the mapped namespace is not root there ({})", status));
    }
    if (geteuid() != 0) {
        return found(*written, "newuidmap and newgidmap wrote the maps, uid 0 taken inside");
    }
    const std::uint64_t count = std::uint64_t{settings.id_ranges} * kRange;
    // 4294967295 is "no id" (chown(2), setresuid(2)), so the last usable one is below it.
    if (settings.id_base + count > 0xFFFFFFFEULL) {
        return missing(fmt::format("{} ends beyond the last id 4294967294", *written));
    }
    // useradd hands out 100000 first; a base of 2^29 is out of its way, the operator's may not be.
    const std::string conflict = subordinate_overlap(settings.id_base, count);
    if (!conflict.empty()) return missing(conflict);
    return found(*written, fmt::format("0 {} {} written to uid_map and gid_map, uid 0 taken inside",
                                       settings.id_base, kRange));
}

// All at once, as a launch makes them: some kernels give each kind alone and not together with a
// user namespace.
void check_namespaces(const Reporter& out, const ProbeSettings& settings)
{
    auto go = sys::make_pipe();
    if (!go) return;
    // One clone for all seven, as the launcher makes them.
    auto inside = sys::clone_process({.flags = static_cast<std::uint64_t>(all_flags())});
    if (!inside) {
        report_one_by_one(out, inside.error());
        out.report(name::kSubordinateIds,
                   missing("no user namespace: " + inside.error().message()));
        return;
    }
    if (inside->pid == 0) sleep_inside(go->read.get());
    const auto proc = sys::ProcDir::open(inside->pid);
    Result<std::string> written = fail(Code::not_found, "no /proc folder of the child");
    if (proc) {
        compare_inodes(out, *proc);
        written = write_maps(*proc, inside->pid, settings);
    }
    // After the maps: the sleeper takes its ids and says how it went.
    static_cast<void>(sys::write_all(go->write.get(), "g"));
    int status = 0;
    while (waitpid(inside->pid, &status, 0) < 0 && errno == EINTR) {}
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    out.report(name::kSubordinateIds, judge_ids(settings, written, code));
}

}  // namespace

Task namespace_task(const ProbeSettings& settings)
{
    Task task;
    task.label = "namespaces";
    for (const Kind& kind : kKinds) task.names.push_back(kind.fact);
    task.names.push_back(name::kSubordinateIds);
    task.body = [settings](const Reporter& out) { check_namespaces(out, settings); };
    return task;
}

}  // namespace sandbox::probe
