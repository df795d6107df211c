// SPDX-License-Identifier: Apache-2.0
#include "guest/spawn.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>

#include "confine/session.hpp"
#include "sys/net/unix.hpp"
#include "sys/process.hpp"
#include "sys/seccomp/load.hpp"
#include "wire/wire.hpp"

namespace sandbox::guest {
namespace {

constexpr std::string_view kDefaultPath = "/usr/local/bin:/usr/bin:/bin";
// What a session child holds besides stdio: its report socket, then the leaf's tasks.
constexpr int kReportNumber = 3;
constexpr int kFirstTask = 4;
constexpr int kMaxHeld = kFirstTask + 16;  // wire: at most 16 leaf descriptors
// Exit status nobody sees: the failure packet tells.
constexpr int kChildFailed = 127;

std::map<std::string, std::string> environment(const wire::Open& open, const wire::Bootstrap& boot)
{
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
        const wire::Rlimit* asked = find_limit(open.rlimits, limit.resource);
        if (asked != nullptr && asked->value > limit.value)
            return std::unexpected(refused("rlimit above the plan's", limit.resource));
        const std::uint64_t value = asked != nullptr ? asked->value : limit.value;
        merged.push_back({limit.resource, value, value});
    }
    for (const wire::Rlimit& limit : open.rlimits)
        if (find_limit(boot.rlimits, limit.resource) == nullptr)
            merged.push_back({limit.resource, limit.value, limit.value});
    return merged;
}

std::vector<sock_filter> filter_of(const wire::Bootstrap& boot)
{
    std::vector<sock_filter> program(boot.bpf.size() / sizeof(sock_filter));
    std::memcpy(program.data(), boot.bpf.data(), program.size() * sizeof(sock_filter));
    return program;
}

sys::LandlockRules landlock_of(const wire::Bootstrap& boot)
{
    sys::LandlockRules rules;
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
        high[i] = ::fcntl(wanted[i], F_DUPFD_CLOEXEC, kMaxHeld);
        if (high[i] < 0) return errno;
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const int flags = i < 3 ? 0 : O_CLOEXEC;
        if (::dup3(high[i], static_cast<int>(i), flags) < 0) return errno;
    }
    return sys::close_range(static_cast<unsigned>(wanted.size()), ~0U);
}

// Ignored signals and the blocked mask pass through execve: back to what a program expects.
void reset_signals() noexcept
{
    struct sigaction action{};
    action.sa_handler = SIG_DFL;
    for (int signal = 1; signal <= SIGRTMAX; ++signal) ::sigaction(signal, &action, nullptr);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

wire::Confined describe(const confine::SelfReport& report, std::uint32_t landlock_abi)
{
    wire::Confined confined;
    confined.pid = static_cast<std::uint32_t>(::getpid());
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
        if (confined.open_fds.size() == 256) break;  // the field's ceiling
        confined.open_fds.push_back(static_cast<std::uint32_t>(fd));
    }
    return confined;
}

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
    int result = ENOENT;
    for (const std::string& path : candidates) {
        ::execve(path.c_str(), argv, envp);
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
    if (const int errnum = keep_only(held)) give_up(held[kReportNumber], errnum, "descriptors");
    reset_signals();
    for (std::size_t i = 0; i < spec.cgroup_tasks.size(); ++i)
        spec.cgroup_tasks[i] = kFirstTask + static_cast<int>(i);
    // Before Landlock, which may forbid opening /proc later; reading what is open it does not.
    const auto witness = confine::SelfWitness::open();
    if (!witness) give_up(kReportNumber, witness.error().errnum(), "witness");
    const std::vector<char*> argv = pointers(program.argv);
    std::vector<char*> envp = pointers(program.env);
    envp.insert(envp.begin(), program.secrets.begin(), program.secrets.end());

    // A copy resolves its path with openat2, whose flags the filter cannot see and so refuses: the
    // filter comes last, when nothing is left to resolve.
    std::vector<sock_filter> filter;
    if (program.copy) filter.swap(spec.bpf);
    const confine::Outcome outcome = confine::apply(spec);
    if (!outcome.ok()) give_up(kReportNumber, outcome.errnum, confine::to_string(outcome.failed));
    std::optional<Copy> copy;
    if (program.copy) copy.emplace(std::move(*program.copy));
    if (const int errnum = filter.empty() ? 0 : sys::seccomp::load(filter))
        give_up(kReportNumber, errnum, confine::to_string(confine::Step::seccomp));
    for (const int task : spec.cgroup_tasks) sys::close_number(task);

    const auto report = witness->read();
    if (!report) give_up(kReportNumber, report.error().errnum(), "read back");
    const auto frame = wire::encode(describe(*report, landlock_abi));
    if (!frame) give_up(kReportNumber, EIO, "encode");
    std::string packet(1, kReport);
    packet.append(reinterpret_cast<const char*>(frame->data()), frame->size());
    if (::write(kReportNumber, packet.data(), packet.size()) < 0) ::_exit(kChildFailed);

    // The gate: no GO, no workload.
    char go = 0;
    ssize_t got = 0;
    do got = ::read(kReportNumber, &go, 1);
    while (got < 0 && errno == EINTR);
    if (got != 1) ::_exit(kChildFailed);
    if (copy) {
        // Its end says that the work has begun, as execve's would.
        sys::close_number(kReportNumber);
        ::_exit(copy->run());
    }
    give_up(kReportNumber, exec_first(program.candidates, argv.data(), envp.data()), "exec");
}

}  // namespace

Program make_program(const wire::Open& open, const wire::Bootstrap& boot)
{
    Program program;
    if (copies(open.kind)) {
        if (auto job = make_copy(open)) program.copy = std::move(*job);
        return program;
    }
    program.argv = open.argv;
    const auto env = environment(open, boot);
    for (const auto& [name, value] : env) program.env.push_back(name + "=" + value);
    const std::string& name = open.argv.front();
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
    spec.capabilities = boot.capabilities;
    spec.cwd = open.cwd;
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
    sys::SocketPair pair = TRY(sys::socket_pair(sys::SocketType::seqpacket));
    std::vector<int> held{stdio.in.get(), stdio.out.get(), stdio.err.get(), pair.second.get()};
    sys::CloneOptions options;
    if (kind == wire::LeafKind::v2_dir) options.cgroup_dir = leaf.front().get();
    if (kind == wire::LeafKind::v1_tasks)
        for (const sys::UniqueFd& task : leaf) {
            held.push_back(task.get());
            spec.cgroup_tasks.push_back(task.get());
        }
    const auto clone = TRY_WITH(sys::clone_process(options), "start a session");
    if (clone.pid == 0)
        run_child(program, std::move(spec), std::move(held), landlock_abi, user_namespace);
    TRY_VOID(sys::set_nonblocking(pair.first.get()));
    return Child{clone.pid, std::move(pair.first)};
}

}  // namespace sandbox::guest
