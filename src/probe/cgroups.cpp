// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <set>

#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "probe/delegation.hpp"
#include "probe/tasks.hpp"
#include "sys/cgroup/cgroup.hpp"
#include "sys/fd.hpp"
#include "sys/file.hpp"
#include "sys/process.hpp"
#include "sys/procfs.hpp"

namespace sandbox::probe {

namespace {

namespace cgroup = sys::cgroup;
namespace name = facts::name;

// No launch uses such a name: is_sandbox_id() wants 32 hex digits.
constexpr std::string_view kProbePrefix = "sandbox-probe-";
constexpr const char* kMemberName = "sandbox-probe";  // at most 15 bytes: TASK_COMM_LEN
// Microseconds on an idle host. A busy one is no reason to say for ten minutes that it cannot kill.
constexpr Millis kFreezeLimit{2'000};
constexpr Millis kRemoveLimit{2'000};
// Large enough for a fresh cgroup's own pages, small enough for any host.
constexpr std::string_view kTestMemory = "67108864";  // 64 MiB, a whole number of any page size

struct Limit {
    std::string_view fact;
    std::string_view controller;  // v2 spelling
    std::string_view v1_controller;
    std::string_view v1_file;
    std::string_view v1_value;  // empty: what the file already holds
    std::string_view v2_file;
    std::string_view v2_value;
};
// Values that every kernel takes and none has by default, so that reading them back proves
// something.
constexpr std::array<Limit, 5> kLimits{{
    {name::kCgroupMemory, "memory", "memory", "memory.limit_in_bytes", kTestMemory, "memory.max",
     kTestMemory},
    {name::kCgroupPids, "pids", "pids", "pids.max", "32", "pids.max", "32"},
    {name::kCgroupCpu, "cpu", "cpu", "cpu.cfs_quota_us", "50000", "cpu.max", "50000 100000"},
    {name::kCgroupCpuset, "cpuset", "cpuset", "cpuset.cpus", "", "cpuset.cpus", ""},
    {name::kCgroupIo, "io", "blkio", "blkio.weight", "200", "io.weight", "default 200"},
}};

std::string_view text_of(cgroup::Version version)
{
    return version == cgroup::Version::v1 ? "v1" : "v2";
}

// The hierarchy that carries a limit, under whichever of its two names.
const cgroup::Hierarchy* carrier(const cgroup::Host& host, const Limit& limit,
                                 std::string& controller)
{
    // v1 first, as everywhere: where both have the word, v1 has the controller.
    for (const std::string_view candidate : {limit.v1_controller, limit.controller}) {
        if (const auto* hierarchy = host.with(candidate)) {
            controller = candidate;
            return hierarchy;
        }
    }
    return nullptr;
}

// Written and read back by CgroupTree::set: a file that takes a value and ignores it is a gap.
Result<std::string> try_setting(const cgroup::CgroupTree& tree, const cgroup::Setting& wanted)
{
    cgroup::Setting setting = wanted;
    // cpuset: any other list might name a CPU that is offline or not ours.
    if (setting.value.empty()) setting.value = TRY(tree.read(setting.controller, setting.file));
    // v2 shows an empty cpuset.cpus until it is set; the effective one is what it inherits.
    if (setting.value.empty()) {
        setting.value = TRY(tree.read(setting.controller, setting.file + ".effective"));
    }
    const std::array<cgroup::Setting, 1> settings{setting};
    TRY_VOID(tree.set(settings));
    return fmt::format("{} = {} written and read back", setting.file, setting.value);
}

Finding check_limit(const cgroup::Host& host, const std::string& path, const Limit& limit)
{
    std::string controller;
    const auto* hierarchy = carrier(host, limit, controller);
    if (hierarchy == nullptr) {
        return missing(fmt::format("no hierarchy has the {} controller", limit.controller));
    }
    const std::array<std::string, 1> controllers{controller};
    // Made for real: a hierarchy that is mounted may still refuse us (permissions, delegation, no
    // CPUs).
    const auto tree = cgroup::CgroupTree::create(host, path, controllers);
    if (!tree) return missing(tree.error().message());
    const bool v1 = hierarchy->version == cgroup::Version::v1;
    cgroup::Setting setting{controller, std::string(v1 ? limit.v1_file : limit.v2_file),
                            std::string(v1 ? limit.v1_value : limit.v2_value)};
    auto done = try_setting(*tree, setting);
    if (!done && v1 && limit.fact == name::kCgroupIo) {
        // Kernels without CFQ spell the weight as BFQ's.
        // blkio.weight went with CFQ in Linux 5.0; BFQ's file has a prefix.
        setting.file = "blkio.bfq.weight";
        done = try_setting(*tree, setting);
    }
    if (!done) return missing(done.error().message());
    return found(std::string(text_of(hierarchy->version)), hierarchy->mount + ": " + *done);
}

// After the memory limit is set: v1 refuses memory+swap below memory.
Finding check_swap(const cgroup::Host& host, const std::string& path)
{
    const auto* hierarchy = host.with("memory");
    if (hierarchy == nullptr) return missing("no hierarchy has the memory controller");
    const std::array<std::string, 1> controllers{"memory"};
    const auto tree = cgroup::CgroupTree::create(host, path, controllers);
    if (!tree) return missing(tree.error().message());
    const bool v1 = hierarchy->version == cgroup::Version::v1;
    const auto done = try_setting(
        *tree,
        v1 ? cgroup::Setting{"memory", "memory.memsw.limit_in_bytes", std::string(kTestMemory)}
           : cgroup::Setting{"memory", "memory.swap.max", "0"});
    if (!done) return missing(done.error().message());
    return found(std::string(text_of(hierarchy->version)), *done);
}

// A process that sleeps inside `tree`, joined the way a launch joins.
Result<sys::Pidfd> start_member(const cgroup::CgroupTree& tree)
{
    const auto handles = TRY(tree.join_handles());
    const auto tasks = handles.task_numbers();
    auto ready = TRY(sys::make_pipe());
    // As the launcher does: v2 by CLONE_INTO_CGROUP, v1 by writing itself.
    auto member = TRY(sys::clone_process({.cgroup_dir = handles.dir.get()}));
    if (member.pid == 0) {
        // Should the prober be killed: this one dies with it, or once it is thawed, and is known.
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, kMemberName);
        const int problem = cgroup::join_self(tasks);
        const char byte = problem == 0 ? 'j' : 'f';
        static_cast<void>(!write(ready.write.get(), &byte, 1));
        // Until it is killed: being killed is the second half of the check.
        while (problem == 0) pause();
        _exit(EXIT_FAILURE);
    }
    ready.write.reset();
    sys::Pidfd handle(std::move(member.pidfd), member.pid);
    // One byte: the member itself keeps the pipe open. End of file: it died.
    char answer = 0;
    if (read(ready.read.get(), &answer, 1) != 1 || answer != 'j') {
        return fail(Code::permission_denied, "writing 0 to tasks was refused");
    }
    return handle;
}

// v1 has a hierarchy for it; on v2 freezing is part of every cgroup.
std::vector<std::string> freezer_controllers(const cgroup::Host& host)
{
    if (host.with("freezer") != nullptr) return {"freezer"};
    return {};
}

void check_members(const Reporter& out, const cgroup::Host& host, const std::string& path)
{
    const auto report_gap = [&](const std::string& why) {
        out.report(name::kCgroupFreezer, missing(why));
        out.report(name::kCgroupKill, missing(why));
    };
    const auto controllers = freezer_controllers(host);
    const std::string version = controllers.empty() ? "v2" : "v1";
    if (controllers.empty() && host.v2() == nullptr)
        return report_gap("no freezer, no v2 hierarchy");
    const std::array<std::string, 1> pids{"pids"};
    // v2 needs any controller to make the folder; pids is the one that every launch uses.
    const auto tree = cgroup::CgroupTree::create(
        host, path, controllers.empty() ? std::span<const std::string>(pids) : controllers);
    if (!tree) return report_gap(tree.error().message());
    const auto member = start_member(*tree);
    if (!member) return report_gap("joining: " + member.error().message());
    const Status frozen = tree->freeze(sys::Deadline::after(kFreezeLimit));
    // Thawed whatever happened: a frozen process cannot be killed on v1.
    const Status thawed = tree->thaw(sys::Deadline::after(kFreezeLimit));
    if (!frozen || !thawed) {
        out.report(name::kCgroupFreezer, missing((frozen ? thawed : frozen).error().message()));
    } else {
        out.report(name::kCgroupFreezer,
                   found(version, "a member was frozen, seen frozen, and thawed"));
    }
    // Also after a freeze that failed: the member must not be left.
    const Status killed = tree->kill_all(sys::Deadline::after(kFreezeLimit));
    const auto end = member->wait_exit(sys::Deadline::after(kFreezeLimit));
    if (!killed || !end || !*end) {
        out.report(name::kCgroupKill,
                   missing(killed ? "the member outlived kill_all" : killed.error().message()));
        return;
    }
    out.report(name::kCgroupKill,
               found(controllers.empty() ? "cgroup.kill" : "freezer",
                     fmt::format("a member was ended with signal {}, the cgroup was seen empty",
                                 (*end)->signal)));
}

void check_cgroups(const Reporter& out, const ProbeSettings& settings, const std::string& path)
{
    const auto host = cgroup::detect();
    if (!host || host->layout == cgroup::Layout::none) {
        out.report(name::kCgroupHierarchy,
                   missing(host ? "no cgroup file system is mounted" : host.error().message()));
        return;
    }
    out.report(name::kCgroupHierarchy,
               found(std::string(cgroup::to_string(host->layout)),
                     fmt::format("{} hierarchies mounted", host->hierarchies.size())));
    // One usable controller proves the parent; which ones are missing, each fact says for itself.
    std::size_t good = 0;
    std::string last_problem = "no controller could be used";
    for (const Limit& limit : kLimits) {
        const Finding finding = check_limit(*host, path, limit);
        if (finding.status == facts::FactStatus::ok)
            ++good;
        else
            last_problem = finding.evidence;
        out.report(limit.fact, finding);
    }
    const CgroupParent parent = choose_cgroup_parent(settings);
    out.report(
        name::kCgroupParent,
        good > 0
            ? found(parent.path, fmt::format("{}; {} was made with limits", parent.reason, path))
            : missing(fmt::format("{} ({}): {}", parent.path, parent.reason, last_problem)));
    out.report(name::kCgroupSwap, check_swap(*host, path));
    check_members(out, *host, path);
}

std::string own_cgroup(const cgroup::Host& host)
{
    const auto self = sys::ProcDir::self();
    const auto lines = self ? self->cgroup() : Result<std::vector<sys::CgroupLine>>{};
    if (!lines || host.v2() == nullptr) return {};
    // Line 0:: is the v2 hierarchy, cgroups(7).
    for (const sys::CgroupLine& line : *lines) {
        if (line.hierarchy == 0) return line.path;
    }
    return {};
}

// The process of a "sandbox-probe-PID" folder is gone?
bool is_stale(std::string_view folder)
{
    pid_t pid = 0;
    folder.remove_prefix(kProbePrefix.size());
    const auto [end, error] = std::from_chars(folder.data(), folder.data() + folder.size(), pid);
    if (error != std::errc{} || end != folder.data() + folder.size() || pid <= 0) return false;
    // Gone for certain: EPERM would mean that somebody is there.
    return kill(pid, 0) != 0 && errno == ESRCH;
}

// A member as a prober of this pid namespace makes it. Elsewhere the number in the folder's name
// means another process, which may live.
bool is_probe_member(pid_t pid)
{
    const auto self = sys::ProcDir::self();
    const auto member = sys::ProcDir::open(pid);
    if (!self || !member) return false;
    struct stat info{};
    if (fstat(member->fd(), &info) != 0 || info.st_uid != geteuid()) return false;
    const auto here = self->namespace_inode("pid");
    const auto there = member->namespace_inode("pid");
    const auto name = member->text("comm");
    return here && there && *here == *there && name && *name == std::string(kMemberName) + "\n";
}

// `own`: made by this process. A stranger's leftover goes if everything in it provably is a prober's;
// on v1 it may be frozen, and ends once it is thawed.
enum class Whose { own, stale };

void remove_cgroup(const cgroup::Host& host, const std::string& path, Whose whose)
{
    const auto tree = cgroup::CgroupTree::find(host, path);
    if (!tree || tree->empty()) return;
    if (whose == Whose::stale) {
        const auto inside = tree->processes();
        if (!inside || !std::all_of(inside->begin(), inside->end(), is_probe_member)) return;
        static_cast<void>(tree->thaw(sys::Deadline::after(kFreezeLimit)));
    }
    static_cast<void>(tree->kill_all(sys::Deadline::after(kRemoveLimit)));
    static_cast<void>(tree->remove(sys::Deadline::after(kRemoveLimit)));
}

}  // namespace

CgroupParent choose_cgroup_parent(const ProbeSettings& settings)
{
    if (settings.cgroup_parent) {
        return {*settings.cgroup_parent, settings.cgroup_reason.empty()
                                             ? "the operator's cgroup_parent"
                                             : settings.cgroup_reason};
    }
    const auto host = cgroup::detect();
    // A delegated unit counts on v2 only: v1 cannot be delegated safely.
    if (host && host->layout == cgroup::Layout::v2) {
        const std::string own = own_cgroup(*host);
        if (own.size() > 1 && is_delegated(host->v2()->mount + own)) {
            return {own + "/sandbox", "below our delegated unit"};
        }
    }
    return {"/sandbox", access("/run/systemd/system", F_OK) == 0
                            ? "the default; set cgroup_parent to a delegated unit's path"
                            : "the default where there is no systemd"};
}

std::string probe_cgroup_path(const std::string& parent)
{
    // Beside the parent, not in it: the probe never makes or removes what a launch relies on.
    const std::size_t slash = parent.rfind('/');
    std::string above = slash == std::string::npos ? "" : parent.substr(0, slash);
    return fmt::format("{}/{}{}", above, kProbePrefix, getpid());
}

void sweep_cgroups(const std::string& probe_cgroup)
{
    // In the caller, after every child has ended: what a killed child left behind.
    const auto host = cgroup::detect();
    if (!host) return;
    remove_cgroup(*host, probe_cgroup, Whose::own);
    const std::string above = probe_cgroup.substr(0, probe_cgroup.rfind('/'));
    // Each hierarchy by itself: a prober was killed wherever it had come to.
    std::set<std::string> stale;
    for (const cgroup::Hierarchy& hierarchy : host->hierarchies) {
        const auto folder = sys::open_dir(hierarchy.mount + above + "/");
        const auto names = folder ? sys::list_dir(folder->get())
                                  : Result<std::vector<std::string>>{};
        if (!names) continue;
        for (const std::string& entry : *names) {
            if (entry.starts_with(kProbePrefix) && is_stale(entry)) stale.insert(entry);
        }
    }
    for (const std::string& entry : stale) remove_cgroup(*host, above + "/" + entry, Whose::stale);
}

Task cgroup_task(const ProbeSettings& settings, std::string probe_cgroup)
{
    Task task;
    task.label = "cgroups";
    task.names = {name::kCgroupHierarchy, name::kCgroupParent, name::kCgroupFreezer,
                  name::kCgroupKill, name::kCgroupSwap};
    for (const Limit& limit : kLimits) task.names.push_back(limit.fact);
    // Killed between freeze and thaw (v1), the member holds up the end of its PID 1, our child.
    task.release = [probe_cgroup] { sweep_cgroups(probe_cgroup); };
    task.body = [settings, path = std::move(probe_cgroup)](const Reporter& out) {
        check_cgroups(out, settings, path);
    };
    return task;
}

}  // namespace sandbox::probe
