// SPDX-License-Identifier: Apache-2.0
#include "guest/machine_groups.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>

#include "sys/file.hpp"

namespace sandbox::guest {
namespace {

// Mounted by boot_machine().
constexpr const char* kMount = "/sys/fs/cgroup";
constexpr const char* kControl = "control";
constexpr const char* kWorkload = "workload";
// What a plan can limit in a guest; all three are of the kernel that the image has.
constexpr const char* kControllers = "+cpu +memory +pids";
constexpr std::size_t kMostBytes = 4096;

using Items = std::vector<std::pair<std::string, std::string>>;

Result<std::string> read_back(int dir, const std::string& name)
{
    std::string text = TRY(sys::read_file_at(dir, name, kMostBytes));
    while (text.ends_with('\n')) text.pop_back();
    return text;
}

// Written and read back: a value that the kernel rounds or refuses must not pass for the one that
// was wanted.
Status set(int dir, const std::string& name, const std::string& value)
{
    TRY_VOID(sys::write_control_at(dir, name, value));
    const std::string found = TRY(read_back(dir, name));
    if (found == value) return {};
    return fail(Code::conflict, name + ": wanted " + value + ", found " + found);
}

Status set_all(int dir, const std::vector<wire::MachineLimit>& limits)
{
    for (const wire::MachineLimit& limit : limits) TRY_VOID(set(dir, limit.file, limit.value));
    return {};
}

Items read_all(int dir, const std::string& group, const std::vector<wire::MachineLimit>& limits)
{
    Items items;
    for (const wire::MachineLimit& limit : limits)
        if (auto value = read_back(dir, limit.file))
            items.emplace_back(group + limit.file, std::move(*value));
    return items;
}

}  // namespace

Result<MachineGroups> MachineGroups::make(const wire::Machine& machine)
{
    const auto top = TRY(sys::open_dir(kMount));
    // From the top down: a controller must be enabled above before it can be below.
    TRY_VOID(sys::write_control_at(top.get(), "cgroup.subtree_control", kControllers));
    TRY_VOID(sys::mkdir_at(top.get(), kControl, 0755));
    TRY_VOID(sys::mkdir_at(top.get(), kWorkload, 0755));
    // By descriptor: all leaves are made and removed relative to it.
    const auto control = TRY(sys::open_at(top.get(), kControl, O_RDONLY | O_DIRECTORY));
    TRY_VOID(set_all(control.get(), machine.control));
    if (!machine.control.empty())
        TRY_VOID(sys::write_control_at(control.get(), "cgroup.procs", "0"));
    MachineGroups groups(TRY(sys::open_at(top.get(), kWorkload, O_RDONLY | O_DIRECTORY)));
    const int workload = groups.workload_.get();
    TRY_VOID(set_all(workload, machine.workload));
    // For the leaves, so that memory.events of each counts its own.
    TRY_VOID(sys::write_control_at(workload, "cgroup.subtree_control", kControllers));
    groups.events_ = TRY(sys::open_at(workload, "memory.events", O_RDONLY));
    groups.report_ = read_all(workload, "cgroup.", machine.workload);
    for (auto& item : read_all(control.get(), "control.cgroup.", machine.control))
        groups.report_.push_back(std::move(item));
    return groups;
}

sys::UniqueFd MachineGroups::make_leaf(const std::string& session)
{
    // Here and not on a timer: leaves take memory only while sessions come and go.
    sweep();
    // A number of our own: session names are the host's, and one may be used twice.
    const std::string name = "x" + std::to_string(next_++);
    if (!sys::mkdir_at(workload_.get(), name, 0755)) return {};
    auto leaf = sys::open_at(workload_.get(), name, O_RDONLY | O_DIRECTORY);
    if (!leaf) return {};
    leaves_.emplace(session, name);
    return std::move(*leaf);
}

void MachineGroups::retire(const std::string& session)
{
    const auto at = leaves_.lower_bound(session);
    if (at == leaves_.end() || at->first != session) return;
    // cgroup.kill, Linux 5.14: all at once, and nobody forks away from it.
    static_cast<void>(sys::write_control_at(workload_.get(), at->second + "/cgroup.kill", "1"));
    dying_.push_back(std::move(at->second));
    leaves_.erase(at);
    // Nobody needs to wait: what is busy is tried again.
    sweep();
}

// Busy while what was killed is not reaped: tried again at the next session.
void MachineGroups::sweep()
{
    // rmdir of a populated cgroup is EBUSY; only an empty one goes.
    std::erase_if(dying_, [this](const std::string& name) {
        return sys::rmdir_at(workload_.get(), name).has_value();
    });
}

// cgroup-v2.rst, memory.events: hierarchical, so the workload's counts its leaves'.
std::uint64_t MachineGroups::oom_kills() const
{
    // Through the one descriptor that is polled: reading it is what arms it again (kernfs).
    std::string text(kMostBytes, '\0');
    const ssize_t count = ::pread(events_.get(), text.data(), text.size(), 0);
    if (count <= 0) return 0;
    text.resize(static_cast<std::size_t>(count));
    constexpr std::string_view kField = "oom_kill ";
    // With the line end before it: "oom_kill" alone is also a part of "oom_group_kill".
    const auto at = text.find(std::string("\n") + std::string(kField));
    if (at == std::string::npos) return 0;
    const char* begin = text.c_str() + at + 1 + kField.size();
    std::uint64_t kills = 0;
    std::from_chars(begin, text.c_str() + text.size(), kills);
    return kills;
}

}  // namespace sandbox::guest
