// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

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
    if (setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0) _exit(4);
    _exit(getuid() == 0 && getpid() == 1 ? EXIT_SUCCESS : 5);
}

// Each kind alone, to name the one that fails.
void report_one_by_one(const Reporter& out, const Error& error)
{
    for (const Kind& kind : kKinds) {
        const int status = in_process([&] {
            return unshare(kind.flag) == 0 ? 0 : errno;  // errno values fit an exit status
        });
        if (status == 0) {
            out.report(kind.fact, found("yes", fmt::format("unshare alone works; all at once: {}",
                                                           error.message())));
        } else {
            errno = status;
            out.report(kind.fact, missing_errno(fmt::format("unshare ({})", kind.file)));
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

struct SubordinateRange {
    std::string owner;
    std::uint64_t base = 0;
    std::uint64_t count = 0;
};

std::optional<std::uint64_t> number(std::string_view text)
{
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

// subuid(5): OWNER:BASE:COUNT lines; others are skipped as newuidmap does.
std::vector<SubordinateRange> subordinate_ranges(const std::string& file)
{
    std::vector<SubordinateRange> ranges;
    const auto text = sys::read_file(file, 1U << 20);
    if (!text) return ranges;
    std::string_view rest = *text;
    while (!rest.empty()) {
        const std::size_t end = rest.find('\n');
        const std::string_view line = rest.substr(0, end);
        rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
        const std::size_t first = line.find(':');
        const std::size_t second = first == std::string_view::npos ? first
                                                                   : line.find(':', first + 1);
        if (second == std::string_view::npos) continue;
        const auto base = number(line.substr(first + 1, second - first - 1));
        const auto count = number(line.substr(second + 1));
        if (base && count) ranges.push_back({std::string(line.substr(0, first)), *base, *count});
    }
    return ranges;
}

// A rootless user's containers must not own what our sandboxes own.
std::string overlap(std::uint64_t base, std::uint64_t count)
{
    for (const char* file : {"/etc/subuid", "/etc/subgid"}) {
        for (const SubordinateRange& range : subordinate_ranges(file)) {
            if (range.base < base + count && base < range.base + range.count) {
                return fmt::format("{} gives {}:{} to {}, which overlaps {}:{}", file, range.base,
                                   range.count, range.owner, base, count);
            }
        }
    }
    return {};
}

Status write_maps(const sys::ProcDir& inside, const ProbeSettings& settings)
{
    if (geteuid() == 0) {
        const std::string map = fmt::format("0 {} {}\n", settings.id_base, kRange);
        TRY_VOID(sys::write_control_at(inside.fd(), "uid_map", map));
        return sys::write_control_at(inside.fd(), "gid_map", map);
    }
    // user_namespaces(7): without privilege gid_map is refused until setgroups is given up.
    TRY_VOID(sys::write_control_at(inside.fd(), "setgroups", "deny"));
    TRY_VOID(sys::write_control_at(inside.fd(), "uid_map", fmt::format("0 {} 1\n", geteuid())));
    return sys::write_control_at(inside.fd(), "gid_map", fmt::format("0 {} 1\n", getegid()));
}

Finding judge_ids(const ProbeSettings& settings, const Status& written, int status)
{
    const std::uint64_t count = std::uint64_t{settings.id_ranges} * kRange;
    const std::string ranges = fmt::format("{}:{}", settings.id_base, count);
    if (!written) return missing("id map: " + written.error().message());
    if (status != EXIT_SUCCESS) {
        return missing(fmt::format("root of the mapped namespace is not root there ({})", status));
    }
    if (geteuid() != 0) {
        return missing(fmt::format("only uid {} could be mapped: not root", geteuid()));
    }
    if (settings.id_base + count > 0xFFFFFFFEULL) {
        return missing(fmt::format("{} ends beyond the last id 4294967294", ranges));
    }
    // useradd hands out 100000 first; a base of 2^29 is out of its way, the operator's may not be.
    const std::string conflict = overlap(settings.id_base, count);
    if (!conflict.empty()) return missing(conflict);
    return found(ranges, fmt::format("0 {} {} written to uid_map and gid_map, uid 0 taken inside",
                                     settings.id_base, kRange));
}

// All at once, as a launch makes them: some kernels give each kind alone and not together with a
// user namespace.
void check_namespaces(const Reporter& out, const ProbeSettings& settings)
{
    auto go = sys::make_pipe();
    if (!go) return;
    auto inside = sys::clone_process({.flags = static_cast<std::uint64_t>(all_flags())});
    if (!inside) {
        report_one_by_one(out, inside.error());
        out.report(name::kSubordinateIds,
                   missing("no user namespace: " + inside.error().message()));
        return;
    }
    if (inside->pid == 0) sleep_inside(go->read.get());
    const auto proc = sys::ProcDir::open(inside->pid);
    Status written = fail(Code::not_found, "no /proc folder of the child");
    if (proc) {
        compare_inodes(out, *proc);
        written = write_maps(*proc, settings);
    }
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
