// SPDX-License-Identifier: Apache-2.0
#include "guest/spawn.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>

#include "confine/session.hpp"
#include "sys/net/unix.hpp"
#include "sys/process.hpp"
#include "sys/seccomp/load.hpp"
#include "sys/signals.hpp"
#include "wire/wire.hpp"

namespace sandbox::guest {
namespace {

// Where neither the plan nor OPEN has a PATH.
constexpr std::string_view kDefaultPath = "/usr/local/bin:/usr/bin:/bin";
// What a session child holds besides stdio: its report socket, then the leaf's tasks.
constexpr int kReportNumber = 3;
constexpr int kFirstTask = 4;
constexpr int kMaxHeld = kFirstTask + 16;  // wire: at most 16 leaf descriptors
// Exit status nobody sees: the failure packet tells. 127 as shells have it, for whoever reads it
// anyway.
constexpr int kChildFailed = 127;

std::map<std::string, std::string> environment(const wire::Open& open, const wire::Bootstrap& boot)
{
    // Plan, terminal, OPEN: the later wins.
    std::map<std::string, std::string> env(boot.env.begin(), boot.env.end());
    if (!open.term.empty()) env["TERM"] = open.term;
    for (const auto& [name, value] : open.env) env[name] = value;
    return env;
}

wire::Failure refused(const char* what, std::uint64_t found = 0)
{
    return {wire::WireError::refused, what, found};
}

const wire::Rlimit* find_limit(const std::vector<wire::Rlimit>& limits, std::uint8_t resource)
{
    const auto found = std::ranges::find(limits, resource, &wire::Rlimit::resource);
    return found == limits.end() ? nullptr : &*found;
}

wire::Decoded<std::vector<sys::Rlimit>> merge_rlimits(const wire::Open& open,
                                                      const wire::Bootstrap& boot)
{
    std::vector<sys::Rlimit> merged;
    for (const wire::Rlimit& limit : boot.rlimits) {
        // Raising would be refused by the kernel for a user, and not for PID 1: so it is refused
        // here.
        const wire::Rlimit* asked = find_limit(open.rlimits, limit.resource);
        if (asked != nullptr && asked->value > limit.value)
            return std::unexpected(refused("rlimit above the plan's", limit.resource));
        const std::uint64_t value = asked != nullptr ? asked->value : limit.value;
        merged.push_back({limit.resource, value, value});
    }
    // What the plan leaves open may be limited by OPEN, in any way: it is inherited otherwise.
    for (const wire::Rlimit& limit : open.rlimits)
        if (find_limit(boot.rlimits, limit.resource) == nullptr)
            merged.push_back({limit.resource, limit.value, limit.value});
    return merged;
}

std::vector<sock_filter> filter_of(const wire::Bootstrap& boot)
{
    // memcpy: the record's bytes are not aligned. Whole instructions, wire::decode has checked.
    std::vector<sock_filter> program(boot.bpf.size() / sizeof(sock_filter));
    std::memcpy(program.data(), boot.bpf.data(), program.size() * sizeof(sock_filter));
    return program;
}

sys::LandlockRules landlock_of(const wire::Bootstrap& boot)
{
    sys::LandlockRules rules;
    // As planned for, also where the kernel has more.
    rules.abi = static_cast<int>(boot.landlock_abi);
    rules.handled_fs = boot.landlock_handled_fs;
    rules.handled_net = boot.landlock_handled_net;
    rules.scopes = boot.landlock_scoped;
    for (const wire::LandlockRule& rule : boot.landlock)
        rules.paths.push_back({rule.path, rule.access});
    for (const wire::LandlockPort& rule : boot.landlock_ports)
        rules.ports.push_back({rule.port, rule.access});
    return rules;
}

// A packet and not text: the parent turns step and errno into words.
[[noreturn]] void give_up(int report, int errnum, std::string_view step)
{
    FailurePacket packet;
    packet.errnum = errnum;
    const std::size_t length = std::min(step.size(), sizeof packet.step - 1);
    std::memcpy(packet.step, step.data(), length);
    [[maybe_unused]] const ssize_t sent = ::write(report, &packet, sizeof packet);
    ::_exit(kChildFailed);
}

// Leaves 0, 1, 2, the report socket and the tasks, in that order and nothing else. First up out
// of the way, then down: no number is overwritten before it was copied.
int keep_only(std::span<const int> wanted) noexcept
{
    std::array<int, kMaxHeld> high{};
    if (wanted.size() > high.size()) return E2BIG;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        // F_DUPFD_CLOEXEC: a copy above all that will be used.
        high[i] = ::fcntl(wanted[i], F_DUPFD_CLOEXEC, kMaxHeld);
        if (high[i] < 0) return errno;
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        // Only 0, 1 and 2 survive execve.
        const int flags = i < 3 ? 0 : O_CLOEXEC;
        if (::dup3(high[i], static_cast<int>(i), flags) < 0) return errno;
    }
    // And every copy above.
    return sys::close_range(static_cast<unsigned>(wanted.size()), ~0U);
}

wire::Confined describe(const confine::SelfReport& report, std::uint32_t landlock_abi)
{
    wire::Confined confined;
    confined.pid = static_cast<std::uint32_t>(::getpid());
    // [1] is the effective one: /proc/PID/status has real, effective, saved and file system ids.
    confined.uid = report.status.uid[1];
    confined.gid = report.status.gid[1];
    confined.groups = report.status.groups;
    confined.caps = {report.status.cap_inheritable, report.status.cap_permitted,
                     report.status.cap_effective, report.status.cap_bounding,
                     report.status.cap_ambient};
    confined.no_new_privs = report.status.no_new_privs;
    confined.seccomp_mode = static_cast<std::uint8_t>(report.status.seccomp);
    confined.seccomp_filters = static_cast<std::uint32_t>(report.status.seccomp_filters);
    confined.landlock_abi = landlock_abi;
    for (const int fd : report.open_fds) {
        // More than 256 is wrong in any case, and 256 show it.
        if (confined.open_fds.size() == 256) break;  // the field's ceiling
        confined.open_fds.push_back(static_cast<std::uint32_t>(fd));
    }
    return confined;
}

// Pointers into `strings`, which must not change until execve.
std::vector<char*> pointers(std::vector<std::string>& strings)
{
    std::vector<char*> list;
    list.reserve(strings.size() + 1);
    for (std::string& text : strings) list.push_back(text.data());
    list.push_back(nullptr);
    return list;
}

// As execvpe(3), without its hand-over to a shell on ENOEXEC.
int exec_first(const std::vector<std::string>& candidates, char* const* argv, char* const* envp)
{
    // As execvp(3): EACCES is told if a candidate was denied and no other was found.
    int result = ENOENT;
    for (const std::string& path : candidates) {
        ::execve(path.c_str(), argv, envp);
        // Anything but these three is a program that is there and cannot run.
        if (errno == EACCES)
            result = EACCES;
        else if (errno != ENOENT && errno != ENOTDIR)
            return errno;
    }
    return result;
}

[[noreturn]] void run_child(Program program, confine::Spec spec, std::vector<int> held,
                            std::uint32_t landlock_abi, int user_namespace)
{
    // First of all: what a capability is good for ends with this. The ids follow with the rest.
    if (user_namespace >= 0 && ::setns(user_namespace, CLONE_NEWUSER) != 0)
        give_up(held[kReportNumber], errno, "user namespace");
    // Past here the child holds nothing of PID 1 but these: a stream of another session, or the
    // channel itself, would be a way around every check.
    // First of all: nothing below may run with a stream of another session in reach.
    if (const int errnum = keep_only(held)) give_up(held[kReportNumber], errnum, "descriptors");
    // Before confinement: a signal that waits acts now, with its default.
    sys::reset_signals();
    // Their numbers have changed with keep_only().
    for (std::size_t i = 0; i < spec.cgroup_tasks.size(); ++i)
        spec.cgroup_tasks[i] = kFirstTask + static_cast<int>(i);
    // Before Landlock, which may forbid opening /proc later; reading what is open it does not.
    const auto witness = confine::SelfWitness::open();
    if (!witness) give_up(kReportNumber, witness.error().errnum(), "witness");
    const std::vector<char*> argv = pointers(program.argv);
    std::vector<char*> envp = pointers(program.env);
    // In front: a variable of the plan with the same name comes later; profile's check refuses two.
    envp.insert(envp.begin(), program.secrets.begin(), program.secrets.end());

    // A copy resolves its path with openat2, whose flags the filter cannot see and so refuses: the
    // filter comes last, when nothing is left to resolve.
    std::vector<sock_filter> filter;
    if (program.copy) filter.swap(spec.bpf);
    // In the order that it needs itself, see confine/session.hpp.
    const confine::Outcome outcome = confine::apply(spec);
    if (!outcome.ok()) give_up(kReportNumber, outcome.errnum, confine::to_string(outcome.failed));
    std::optional<Copy> copy;
    if (program.copy) copy.emplace(std::move(*program.copy));
    if (const int errnum = filter.empty() ? 0 : sys::seccomp::load(filter))
        give_up(kReportNumber, errnum, confine::to_string(confine::Step::seccomp));
    // Leaf files are for PID 1's rights only; the workload must not have them.
    for (const int task : spec.cgroup_tasks) sys::close_number(task);

    // Read from the kernel, not from what was asked for: law 8.
    const auto report = witness->read();
    if (!report) give_up(kReportNumber, report.error().errnum(), "read back");
    const auto frame = wire::encode(describe(*report, landlock_abi));
    if (!frame) give_up(kReportNumber, EIO, "encode");
    std::string packet(1, kReport);
    packet.append(reinterpret_cast<const char*>(frame->data()), frame->size());
    // One packet; more than a SEQPACKET message can hold is not possible (a head of 8 KiB).
    if (::write(kReportNumber, packet.data(), packet.size()) < 0) ::_exit(kChildFailed);

    // The gate: no GO, no workload.
    char go = 0;
    ssize_t got = 0;
    do got = ::read(kReportNumber, &go, 1);
    while (got < 0 && errno == EINTR);
    // End of file: PID 1 or the host does not want it.
    if (got != 1) ::_exit(kChildFailed);
    if (copy) {
        // Its end says that the work has begun, as execve's would.
        sys::close_number(kReportNumber);
        ::_exit(copy->run());
    }
    // The report socket is closed by a successful execve: that is how PID 1 knows.
    give_up(kReportNumber, exec_first(program.candidates, argv.data(), envp.data()), "exec");
}

}  // namespace

Program make_program(const wire::Open& open, const wire::Bootstrap& boot)
{
    Program program;
    if (copies(open.kind)) {
        // make_spec() has refused a bad one already.
        if (auto job = make_copy(open)) program.copy = std::move(*job);
        return program;
    }
    program.argv = open.argv;
    const auto env = environment(open, boot);
    for (const auto& [name, value] : env) program.env.push_back(name + "=" + value);
    const std::string& name = open.argv.front();
    // With a slash it is a path, and PATH does not matter (execvp(3)).
    if (name.find('/') != std::string::npos) {
        program.candidates.push_back(name);
        return program;
    }
    const auto found = env.find("PATH");
    std::string_view path = found == env.end() ? kDefaultPath : std::string_view(found->second);
    while (!path.empty() && !name.empty()) {
        const std::size_t end = std::min(path.find(':'), path.size());
        // An empty entry means the working directory, which the workload can write to: skipped.
        if (end > 0) program.candidates.push_back(std::string(path.substr(0, end)) + "/" + name);
        path.remove_prefix(std::min(end + 1, path.size()));
    }
    return program;
}

wire::Decoded<confine::Spec> make_spec(const wire::Open& open, const wire::Bootstrap& boot)
{
    // On a host it is made outside, in the sandbox's own devpts: PID 1 there opens no terminals.
    if (boot.mode != wire::BootMode::microvm && open.kind == wire::SessionKind::pty &&
        open.stdio == wire::SessionStdio::frames)
        return std::unexpected(refused("a terminal comes as descriptors"));
    if (copies(open.kind)) TRY(make_copy(open));
    const wire::PermittedId wanted{open.uid, open.gid};
    // As pairs: a uid with another's gid would be more than the plan has.
    if (std::ranges::find(boot.permitted_ids, wanted) == boot.permitted_ids.end())
        return std::unexpected(refused("uid and gid outside the plan", open.uid));
    for (const std::uint32_t group : open.groups)
        if (group != open.gid &&
            std::ranges::find(boot.permitted_groups, group) == boot.permitted_groups.end())
            return std::unexpected(refused("group outside the plan", group));
    confine::Spec spec;
    auto limits = merge_rlimits(open, boot);
    if (!limits) return std::unexpected(limits.error());
    spec.rlimits = std::move(*limits);
    spec.umask = open.umask;
    spec.uid = open.uid;
    spec.gid = open.gid;
    spec.groups.assign(open.groups.begin(), open.groups.end());
    // The bounding set for all sessions; a session cannot ask for less or more.
    spec.capabilities = boot.capabilities;
    spec.cwd = open.cwd;
    // A login's habit; "/" where nothing else is known.
    if (spec.cwd.empty()) {
        const auto env = environment(open, boot);
        const auto home = env.find("HOME");
        spec.cwd = home == env.end() || home->second.empty() ? "/" : home->second;
    }
    spec.landlock = landlock_of(boot);
    spec.bpf = filter_of(boot);
    return spec;
}

Result<Child> spawn(const Program& program, confine::Spec spec, const Stdio& stdio,
                    wire::LeafKind kind, const std::vector<sys::UniqueFd>& leaf,
                    std::uint32_t landlock_abi, int user_namespace)
{
    // One packet a message, and an end that shows.
    sys::SocketPair pair = TRY(sys::socket_pair(sys::SocketType::seqpacket));
    // The order that keep_only() expects: 0, 1, 2, report, tasks.
    std::vector<int> held{stdio.in.get(), stdio.out.get(), stdio.err.get(), pair.second.get()};
    sys::CloneOptions options;
    // Born in it: there is no moment outside its limits (clone3(2), CLONE_INTO_CGROUP, Linux 5.7).
    if (kind == wire::LeafKind::v2_dir) options.cgroup_dir = leaf.front().get();
    // v1 has no such flag: the child joins by itself, before anything else.
    if (kind == wire::LeafKind::v1_tasks)
        for (const sys::UniqueFd& task : leaf) {
            held.push_back(task.get());
            spec.cgroup_tasks.push_back(task.get());
        }
    const auto clone = TRY_WITH(sys::clone_process(options), "start a session");
    // The child never returns.
    if (clone.pid == 0)
        run_child(program, std::move(spec), std::move(held), landlock_abi, user_namespace);
    // The parent's end only: the child waits at its gate.
    TRY_VOID(sys::set_nonblocking(pair.first.get()));
    return Child{clone.pid, std::move(pair.first)};
}

}  // namespace sandbox::guest
