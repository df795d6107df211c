// SPDX-License-Identifier: Apache-2.0
#include "guest/machine_box.hpp"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "guest/machine_tree.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"
#include "sys/process.hpp"

namespace sandbox::guest {
namespace {

constexpr int kSpaces = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET |
                        CLONE_NEWCGROUP;
// The kernel's names of them in /proc/PID/ns, and the plan's.
constexpr std::array<std::pair<const char*, const char*>, 6> kNames{{{"mnt", "mount"},
                                                                     {"pid", "pid"},
                                                                     {"ipc", "ipc"},
                                                                     {"uts", "uts"},
                                                                     {"net", "net"},
                                                                     {"cgroup", "cgroup"}}};
constexpr std::string_view kBuilt = "+";
constexpr std::size_t kMostWords = 1024;

// First process of the box: builds the tree, says so, and is there.
[[noreturn]] void hold(const wire::Machine& machine, int parent)
{
    const Status built = enter_tree(machine);
    const std::string words = built ? std::string(kBuilt)
                                    : built.error().message().substr(0, kMostWords);
    if (::send(parent, words.data(), words.size(), MSG_NOSIGNAL) < 0 || !built) ::_exit(1);
    // What it inherited is PID 1's: the port, the cgroups.
    sys::close_range(0, ~0U);
    ::prctl(PR_SET_DUMPABLE, 0);
    // Orphans of the box come here, and are gone at once (sigaction(2), SIG_IGN for SIGCHLD).
    ::signal(SIGCHLD, SIG_IGN);
    for (;;) ::pause();
}

// Whether a namespace of the box is another than PID 1's, by the numbers of /proc.
Result<bool> is_own(int proc, pid_t holder, const std::string& space)
{
    struct stat own{};
    struct stat other{};
    if (::fstatat(proc, ("self/ns/" + space).c_str(), &own, 0) != 0)
        return fail_errno("stat", space);
    if (::fstatat(proc, (std::to_string(holder) + "/ns/" + space).c_str(), &other, 0) != 0)
        return fail_errno("stat", space);
    return own.st_ino != other.st_ino;
}

}  // namespace

Result<MachineBox> enter_box(const wire::Machine& machine)
{
    MachineBox box;
    box.proc = TRY(sys::open_dir("/proc"));
    sys::SocketPair pair = TRY(sys::socket_pair(sys::SocketType::seqpacket));
    sys::CloneOptions options;
    options.flags = kSpaces;
    const auto clone = TRY_WITH(sys::clone_process(options), "the workload's namespaces");
    if (clone.pid == 0) hold(machine, pair.second.get());
    pair.second.reset();
    const std::string said = TRY(sys::recv_fds(pair.first.get(), kMostWords, 0)).bytes;
    if (said != kBuilt)
        return fail(Code::unavailable, said.empty() ? "the tree's builder ended" : said);
    for (const auto& [space, name] : kNames)
        box.report.emplace_back(std::string("namespace.") + name,
                                TRY(is_own(box.proc.get(), clone.pid, space)) ? "own" : "shared");
    // The kernel starts PID 1 with root and working directory shared with its own threads, and a mount
    // namespace is joined only by who has them alone (setns(2), EINVAL).
    if (::unshare(CLONE_FS) != 0) return fail_errno("unshare", "CLONE_FS");
    // pidfd and all at once: Linux 5.8. CLONE_NEWPID is for the children.
    if (::setns(clone.pidfd.get(), kSpaces) != 0) return fail_errno("setns", "the box");
    return box;
}

}  // namespace sandbox::guest
