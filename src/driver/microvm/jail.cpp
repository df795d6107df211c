// SPDX-License-Identifier: Apache-2.0
#include "driver/microvm/jail.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/diagnostic.hpp"
#include "driver/microvm/jail_inside.hpp"
#include "sys/file.hpp"
#include "sys/mount.hpp"
#include "sys/net/unix.hpp"
#include "sys/seccomp/compile.hpp"

namespace sandbox::driver::microvm {

namespace {

// Of one report: an Error's message.
constexpr std::size_t kReportLimit = 4096;

// The other ends are the child's; ours close on exec and with us.
struct Ends {
    sys::SocketPair lifeline;
    sys::SocketPair report;
};

Status check_spec(const JailSpec& spec)
{
    for (const JailBind& bind : spec.binds)
        if (bind.path.size() < 2 || bind.path.front() != '/' ||
            bind.path.find("..") != bind.path.npos)
            return fail(Code::invalid_argument, "not a place in a jail: " + escaped(bind.path));
    if (spec.with_proc && spec.power != Power::namespace_root)
        return fail(Code::invalid_argument, "a jail without power has no /proc");
    if ((spec.argv.empty() && !spec.function) || spec.descriptors.empty())
        return fail(Code::invalid_argument, "a jailed program has a name and a standard input");
    return {};
}

// Where the host's mounts are seen: a jail's own namespace cannot clone them any more.
Result<std::vector<sys::UniqueFd>> clone_binds(const std::vector<JailBind>& binds)
{
    std::vector<sys::UniqueFd> mounts;
    for (const JailBind& bind : binds) {
        if (bind.use == JailUse::device) {  // made, not bound
            mounts.emplace_back();
            continue;
        }
        sys::UniqueFd mount = TRY_WITH(sys::clone_tree(bind.from.get(), "", sys::Depth::single),
                                       "bind " + bind.path);
        sys::MountAttributes flags;
        flags.no_suid = true;
        flags.read_only = true;
        flags.no_dev = true;
        TRY_VOID(sys::set_mount_attributes(mount.get(), flags, sys::Depth::single));
        mounts.push_back(std::move(mount));
    }
    return mounts;
}

// The program's number here is the credential of its one word; the end of the report says that it
// became the program.
Result<pid_t> await_program(int report, const std::string& name, sys::Deadline deadline)
{
    std::optional<pid_t> program;
    for (;;) {
        if (TRY(sys::poll_one(report, POLLIN, deadline)) == 0)
            return fail(Code::deadline_exceeded, name + " did not start in time");
        const auto packet = TRY(sys::recv_fds(report, kReportLimit, 0));
        if (packet.bytes.empty()) {
            if (program) return *program;
            return fail(Code::unavailable, name + " ended before its program ran");
        }
        if (packet.bytes != kReady || program || !packet.pid)
            return fail(Code::unavailable, name + ": " + escaped(packet.bytes));
        program = *packet.pid;
    }
}

}  // namespace

Result<Jailed> start_jail(JailSpec spec, sys::Deadline deadline)
{
    TRY_VOID(check_spec(spec));
    Ends ends{TRY(sys::socket_pair(sys::SocketType::stream)),
              TRY(sys::socket_pair(sys::SocketType::seqpacket))};
    TRY_VOID(sys::enable_credentials(ends.report.first.get()));
    JailStart start{.spec = spec,
                    .mounts = TRY(clone_binds(spec.binds)),
                    .user_namespace = TRY(sys::make_user_namespace(spec.ids, spec.ids))};
    if (spec.power == Power::none) {
        const auto arch = sys::seccomp::native_arch();
        if (!arch) return fail(Code::unavailable, "no system call table for this machine");
        start.filter = sys::seccomp::compile(jail_rules(), *arch);
    }
    sys::cgroup::JoinHandles keeper;
    sys::cgroup::JoinHandles program;
    if (spec.keeper_group != nullptr) keeper = TRY(spec.keeper_group->join_handles());
    if (spec.program_group != nullptr) program = TRY(spec.program_group->join_handles());
    start.keeper_tasks = keeper.task_numbers();
    start.program_tasks = program.task_numbers();
    start.program_dir = program.dir.get();

    sys::CloneOptions options;
    options.flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
    options.cgroup_dir = keeper.dir.get();
    auto child = TRY_WITH(sys::clone_process(options), "start " + spec.name);
    if (child.pid == 0) {
        ends.lifeline.first.reset();
        ends.report.first.reset();
        start.lifeline = std::move(ends.lifeline.second);
        start.report = std::move(ends.report.second);
        run_keeper(std::move(start));
    }
    Jailed jail;
    jail.keeper = sys::Pidfd(std::move(child.pidfd), child.pid);
    jail.lifeline = std::move(ends.lifeline.first);
    ends.lifeline.second.reset();
    ends.report.second.reset();
    auto pid = await_program(ends.report.first.get(), spec.name, deadline);
    auto handle = pid ? sys::Pidfd::open(*pid) : Result<sys::Pidfd>(fail(pid.error()));
    if (handle) {
        jail.program = std::move(*handle);
        return jail;
    }
    [[maybe_unused]] const auto ended = end_jail(jail, deadline);
    return fail(std::move(handle).error());
}

Status end_jail(Jailed& jail, sys::Deadline deadline)
{
    jail.lifeline.reset();
    if (jail.keeper.fd() < 0) return {};
    // Its children are gone when it is reaped: the kernel ends a pid namespace before its PID 1.
    [[maybe_unused]] const auto sent = jail.keeper.send_signal(SIGKILL);
    if (!TRY(jail.keeper.wait_exit(deadline)))
        return fail(Code::deadline_exceeded, "a jail did not end: it may hang in the kernel");
    jail.keeper = sys::Pidfd(sys::UniqueFd(), 0);
    return {};
}

void relabel_process(const std::string& label) noexcept
{
    // Fields 48 and 49 of proc(5)'s stat: where the arguments lie in our own memory.
    constexpr int kArgStart = 48;
    const auto text = sys::read_file("/proc/self/stat", sys::kProcFileLimit);
    if (!text) return;
    // The command may hold anything but its last parenthesis; the state after it is field 3.
    const auto paren = text->rfind(')');
    if (paren == std::string::npos) return;
    const char* at = text->c_str() + paren + 1;
    for (int field = 3; field <= kArgStart; ++field) {
        at = std::strchr(at, ' ');
        if (at == nullptr) return;
        ++at;
    }
    char* end = nullptr;
    const unsigned long first = std::strtoul(at, &end, 10);
    const unsigned long last = std::strtoul(end, nullptr, 10);
    if (first == 0 || last <= first) return;
    char* area = reinterpret_cast<char*>(first);
    const std::size_t size = last - first;
    std::memset(area, 0, size);
    std::memcpy(area, label.data(), std::min(label.size(), size - 1));
}

}  // namespace sandbox::driver::microvm
