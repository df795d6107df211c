// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "sys/cgroup/cgroup.hpp"
#include "sys/cgroup/walk.hpp"
#include "sys/file.hpp"
#include "sys/process.hpp"

namespace sandbox::sys::cgroup {

namespace {

// 7 digits and a newline for each of 4 million pids (PID_MAX_LIMIT).
constexpr std::size_t kProcsLimit = 32U << 20;

// A file that vanished with its cgroup, or whose processes went between open and read.
bool vanished(const Error& error)
{
    // ENODEV: the cgroup died while the file was open. EOPNOTSUPP: a threaded cgroup has no
    // cgroup.procs (cgroup-v2.rst).
    return error.errnum() == ENOENT || error.errnum() == ENODEV || error.errnum() == EOPNOTSUPP;
}

void parse_pids(std::string_view text, std::vector<pid_t>& pids)
{
    while (!text.empty()) {
        const auto end = std::min(text.find('\n'), text.size());
        pid_t pid = 0;
        std::from_chars(text.data(), text.data() + end, pid);
        // 0 stands for a process outside our pid namespace: nothing we could signal.
        if (pid > 0) pids.push_back(pid);
        text.remove_prefix(std::min(end + 1, text.size()));
    }
}

Status collect(int dir, std::vector<pid_t>& pids)
{
    // Parents first, so that a process that moves up while we read is seen twice rather than not at
    // all.
    for (const std::string& path : TRY(subtree(dir))) {
        auto text = read_file_at(dir, path + "/cgroup.procs", kProcsLimit);
        if (text)
            parse_pids(*text, pids);
        else if (!vanished(text.error()))
            return std::unexpected(std::move(text).error());
    }
    return {};
}

std::unexpected<Error> late(const std::string& what) { return fail(Code::deadline_exceeded, what); }

// Waits until the first of them ended; a process that is slow to die (uninterruptible sleep) costs
// at most the deadline.
Status wait_all(const std::vector<Pidfd>& handles, Deadline deadline)
{
    // One after the other is enough: all of them were killed, and the deadline is for all together.
    for (const Pidfd& handle : handles)
        if (!TRY(handle.wait_ended(deadline)))
            return late("process " + std::to_string(handle.pid()) + " does not end after SIGKILL");
    return {};
}

// Opens first and lists again afterwards: a number seen in both lists, with a handle taken between
// them, is a member through that handle, not a stranger that got a reused number.
Result<std::vector<Pidfd>> handles_of(const CgroupTree& tree)
{
    std::vector<Pidfd> handles;
    for (const pid_t pid : TRY(tree.processes())) {
        auto handle = Pidfd::open(pid);
        // Gone meanwhile, or no descriptor left: the next round looks again.
        if (handle) handles.push_back(*std::move(handle));
    }
    const auto members = TRY(tree.processes());
    std::erase_if(handles, [&members](const Pidfd& handle) {
        return !std::binary_search(members.begin(), members.end(), handle.pid());
    });
    return handles;
}

Status signal_all(const std::vector<Pidfd>& handles)
{
    for (const Pidfd& handle : handles) {
        auto sent = handle.send_signal(SIGKILL);
        // Ended in between: that is what was wanted.
        if (!sent && sent.error().errnum() != ESRCH) return sent;
    }
    return {};
}

// Asked each time: the file tells the version and the kernel's age at once.
bool has_file(int dir, const char* name) { return ::faccessat(dir, name, F_OK, 0) == 0; }

enum class State { thawed, changing, frozen };

// v1 says FREEZING until the last one stopped; v2 tells in cgroup.events.
State state_of(int dir)
{
    const auto v1 = read_file_at(dir, "freezer.state", 64);
    if (v1) {
        if (trimmed(*v1) == "FROZEN") return State::frozen;
        return trimmed(*v1) == "THAWED" ? State::thawed : State::changing;
    }
    const auto events = read_file_at(dir, "cgroup.events", 4096);
    return events && keyed_value(*events, "frozen") == 1 ? State::frozen : State::thawed;
}

// Asks, then waits until the kernel says so. A folder without a freezer is left out.
Status change_state(int dir, const std::string& path, State wanted, Deadline deadline)
{
    const bool freeze = wanted == State::frozen;
    if (has_file(dir, "freezer.state"))
        TRY_VOID(write_control_at(dir, "freezer.state", freeze ? "FROZEN" : "THAWED"));
    else if (has_file(dir, "cgroup.freeze"))
        TRY_VOID(write_control_at(dir, "cgroup.freeze", freeze ? "1" : "0"));
    else
        return {};
    // Polled: a v1 freezer tells nobody when it is done.
    while (state_of(dir) != wanted) {
        if (deadline.passed())
            return late("cgroup " + path + (freeze ? " does not freeze" : " does not thaw"));
        pause_briefly();
    }
    return {};
}

// A child that was frozen by itself (a paused workload) stays so when its parent goes on.
Status thaw_children(int dir)
{
    for (const std::string& path : TRY(subtree(dir))) {
        const auto own = read_file_at(dir, path + "/freezer.self_freezing", 64);
        if (path == "." || !own || trimmed(*own) != "1") continue;
        auto thawed = write_control_at(dir, path + "/freezer.state", "THAWED");
        if (!thawed && !vanished(thawed.error())) return thawed;
    }
    return {};
}

Status remove_dirs(int dir, const std::string& path, Deadline deadline)
{
    auto below = TRY(subtree(dir));
    // Children first: a cgroup with children cannot be removed.
    std::reverse(below.begin(), below.end());
    for (const std::string& name : below) {
        const std::string full = name == "." ? path : path + "/" + name;
        // By name: rmdir(2) has no other way, and the folders are ours alone.
        while (::rmdir(full.c_str()) != 0 && errno != ENOENT) {
            // EBUSY also shortly after the last process ended, until the kernel has unlinked it.
            if (errno != EBUSY) return fail_errno("rmdir", full);
            if (deadline.passed()) return late("cgroup " + full + " stays busy");
            pause_briefly();
        }
    }
    return {};
}

}  // namespace

Result<std::vector<pid_t>> members(const Host& host, std::string_view controller,
                                   const std::string& path)
{
    std::vector<pid_t> pids;
    const Hierarchy* hierarchy = host.with(controller);
    if (hierarchy == nullptr) return pids;
    auto text = read_file(hierarchy->mount + path + "/cgroup.procs", kProcsLimit);
    if (text)
        parse_pids(*text, pids);
    else if (!vanished(text.error()))
        return std::unexpected(std::move(text).error());
    return pids;
}

Result<std::vector<pid_t>> CgroupTree::processes() const
{
    std::vector<pid_t> pids;
    // In every hierarchy: a process may be in one of them only, after a join that failed half-way.
    for (const Dir& dir : dirs_) TRY_VOID(collect(dir.fd.get(), pids));
    std::sort(pids.begin(), pids.end());
    pids.erase(std::unique(pids.begin(), pids.end()), pids.end());
    return pids;
}

Status CgroupTree::freeze(Deadline deadline) const
{
    for (const Dir& dir : dirs_)
        TRY_VOID(change_state(dir.fd.get(), dir.path, State::frozen, deadline));
    return {};
}

Status CgroupTree::thaw(Deadline deadline) const
{
    for (const Dir& dir : dirs_)
        TRY_VOID(change_state(dir.fd.get(), dir.path, State::thawed, deadline));
    return {};
}

Status CgroupTree::kill_round(Deadline deadline) const
{
    // A cgroup that does not freeze in this time (a task in uninterruptible sleep) is killed all
    // the same.
    constexpr Millis kFreezeTime{100};
    // cgroup.kill: Linux 5.14; also kills what forks at the same moment.
    for (const Dir& dir : dirs_)
        if (has_file(dir.fd.get(), "cgroup.kill"))
            TRY_VOID(write_control_at(dir.fd.get(), "cgroup.kill", "1"));
    const auto v1 = std::find_if(dirs_.begin(), dirs_.end(), [](const Dir& dir) {
        return has_file(dir.fd.get(), "freezer.state");
    });
    Status stopped{};
    // Without the freezer a fork storm could outrun the list.
    if (v1 != dirs_.end())
        stopped = change_state(v1->fd.get(), v1->path, State::frozen,
                               Deadline::after(std::min(kFreezeTime, deadline.remaining())));
    auto handles = handles_of(*this);
    const Status signalled = handles ? signal_all(*handles) : Status{};
    // Whatever went wrong, nothing is left frozen: a frozen process never dies.
    if (v1 != dirs_.end()) {
        TRY_VOID(thaw_children(v1->fd.get()));
        TRY_VOID(change_state(v1->fd.get(), v1->path, State::thawed, deadline));
    }
    // A freezer that was too slow did no harm: the next round tries again.
    if (!stopped && stopped.error().code() != Code::deadline_exceeded) return stopped;
    if (!handles) return std::unexpected(std::move(handles).error());
    if (!signalled) return signalled;
    return wait_all(*handles, deadline);
}

Status CgroupTree::kill_all(Deadline deadline) const
{
    // Again and again: v1 has no way to be sure but an empty list.
    while (!TRY(processes()).empty()) {
        TRY_VOID(kill_round(deadline));
        if (deadline.passed()) return late("cgroup " + path_ + " does not become empty");
    }
    return {};
}

bool CgroupTree::remove_vacant() const noexcept
{
    bool gone = true;
    for (const Dir& dir : dirs_)
        if (::rmdir(dir.path.c_str()) != 0 && errno != ENOENT) gone = false;
    return gone;
}

Status CgroupTree::remove(Deadline deadline) const
{
    for (const Dir& dir : dirs_) TRY_VOID(remove_dirs(dir.fd.get(), dir.path, deadline));
    return {};
}

Status remove_if_empty(const Host& host, const std::string& path)
{
    for (const Hierarchy& hierarchy : host.hierarchies) {
        const std::string full = hierarchy.mount + path;
        // Other roots or other sandboxes may use it at the same time.
        if (::rmdir(full.c_str()) == 0) continue;
        // One that this user may not remove is not this user's.
        if (errno != ENOENT && errno != EBUSY && errno != ENOTEMPTY && errno != EACCES)
            return fail_errno("rmdir", full);
    }
    return {};
}

Status leave(const Host& host, const std::string& path) { return leave_to(host, path, ""); }

Status leave_to(const Host& host, const std::string& path, const std::string& back)
{
    for (const Hierarchy& hierarchy : host.hierarchies) {
        if (::access((hierarchy.mount + path).c_str(), F_OK) != 0) continue;
        // One thread, so moving it moves the process; cheaper than cgroup.procs in v1.
        const char* file = hierarchy.version == Version::v1 ? "/tasks" : "/cgroup.procs";
        auto members = TRY(open_file(hierarchy.mount + back + file, O_WRONLY));
        TRY_VOID(write_all(members.get(), "0"));
    }
    return remove_if_empty(host, path);
}

}  // namespace sandbox::sys::cgroup
