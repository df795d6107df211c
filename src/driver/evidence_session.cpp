// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>

#include "base/diagnostic.hpp"
#include "driver/collector.hpp"
#include "driver/evidence.hpp"
#include "driver/groups.hpp"
#include "sys/caps.hpp"

namespace sandbox::driver {
namespace {

std::string number(std::uint64_t value) { return std::to_string(value); }

// PID 1's report and what we read ourselves must be of one mind.
void observe_identity(const plan::PlanContent& plan, const Binding& binding,
                      const sys::ProcStatus& status, const wire::Confined& report,
                      Collector& collector)
{
    const std::uint32_t uid = binding.id_base + plan.process.uid;
    const std::uint32_t gid = binding.id_base + plan.process.gid;
    const auto all = [](const std::array<std::uint32_t, 4>& ids, std::uint32_t wanted) {
        return std::ranges::all_of(ids, [wanted](std::uint32_t id) { return id == wanted; });
    };
    const bool groups = std::ranges::all_of(status.groups,
                                            [&](std::uint32_t group) { return group == gid; });
    const bool same = report.uid == plan.process.uid && report.gid == plan.process.gid;
    collector.add("process.user", number(plan.process.uid) + ":" + number(plan.process.gid),
                  number(report.uid) + ":" + number(report.gid) + " (host " +
                      number(status.uid[1]) + ":" + number(status.gid[1]) + ")",
                  held_if(all(status.uid, uid) && all(status.gid, gid) && groups && same));
}

Status observe_rights(const plan::PlanContent& plan, const sys::ProcDir& init,
                      const sys::ProcStatus& status, const wire::Confined& report,
                      Collector& collector)
{
    const auto wanted = TRY(sys::cap_set(plan.security.capabilities));
    const std::uint64_t sets[] = {status.cap_inheritable, status.cap_permitted,
                                  status.cap_effective, status.cap_bounding, status.cap_ambient};
    const std::uint64_t reported[] = {report.caps.inheritable, report.caps.permitted,
                                      report.caps.effective, report.caps.bounding,
                                      report.caps.ambient};
    std::uint64_t any = 0;
    for (const std::uint64_t set : sets) any |= set;
    std::string text;
    for (const std::string& name : sys::cap_names(any)) text += (text.empty() ? "" : ",") + name;
    // All five alike: a set that is smaller than planned breaks the workload, a larger one us.
    const bool exact = std::ranges::all_of(sets, [&](auto set) { return set == wanted; });
    collector.add("capabilities", "none", text.empty() ? "none" : text,
                  held_if(exact && std::ranges::equal(sets, reported)));
    collector.add("no_new_privileges", "1", status.no_new_privs ? "1" : "0",
                  held_if(status.no_new_privs && report.no_new_privs));
    // The inner ring on top of what PID 1 has, which was witnessed when it was launched. Not counted
    // from ourselves: whoever opens a session may run under filters that the launcher did not have.
    const int expected = TRY(init.status()).seccomp_filters + 1;
    collector.add("seccomp.filter", "two filters",
                  "mode " + std::to_string(status.seccomp) + ", " +
                      std::to_string(status.seccomp_filters) + " filters",
                  held_if(status.seccomp == 2 && status.seccomp_filters == expected &&
                          report.seccomp_mode == 2));
    if (plan.security.landlock_abi > 0)
        collector.add("landlock", "abi " + number(plan.security.landlock_abi),
                      "abi " + number(report.landlock_abi) + " (reported)",
                      held_if(report.landlock_abi == plan.security.landlock_abi));
    return {};
}

// One row of /proc/PID/limits: "Max open files            1024                 1024        files".
std::string limit_row(std::string_view text, std::string_view title)
{
    const auto at = text.find(title);
    if (at == std::string_view::npos) return {};
    std::string_view row = text.substr(at + title.size());
    row = row.substr(0, row.find('\n'));
    std::string values;
    for (int column = 0; column < 2; ++column) {
        row.remove_prefix(std::min(row.find_first_not_of(' '), row.size()));
        const auto end = std::min(row.find(' '), row.size());
        values += (column == 0 ? "" : " ") + std::string(row.substr(0, end));
        row.remove_prefix(end);
    }
    return values;
}

// Titles of fs/proc/base.c, lnames.
std::string_view limit_title(std::string_view name)
{
    constexpr std::pair<std::string_view, std::string_view> kTitles[] = {
        {"as", "Max address space"},
        {"core", "Max core file size"},
        {"cpu", "Max cpu time"},
        {"data", "Max data size"},
        {"fsize", "Max file size"},
        {"locks", "Max file locks"},
        {"memlock", "Max locked memory"},
        {"msgqueue", "Max msgqueue size"},
        {"nice", "Max nice priority"},
        {"nofile", "Max open files"},
        {"nproc", "Max processes"},
        {"rss", "Max resident set"},
        {"rtprio", "Max realtime priority"},
        {"rttime", "Max realtime timeout"},
        {"sigpending", "Max pending signals"},
        {"stack", "Max stack size"},
    };
    for (const auto& [known, title] : kTitles)
        if (known == name) return title;
    return {};
}

Status observe_process(const plan::PlanContent& plan, const sys::ProcDir& process,
                       const sys::ProcStatus& status, Collector& collector)
{
    char octal[8];
    std::snprintf(octal, sizeof octal, "%04o", status.umask);
    collector.add("process.umask", "as planned", octal,
                  held_if(status.umask == plan.process.umask));
    const std::string limits = TRY(process.text("limits"));
    for (const auto& [name, value] : plan.process.rlimits) {
        const std::string_view title = limit_title(name);
        const std::string seen = title.empty() ? "" : limit_row(limits, title);
        const std::string text = value == UINT64_MAX ? "unlimited" : number(value);
        collector.add("rlimit." + name, text, seen, held_if(seen == text + " " + text));
    }
    return {};
}

Status observe_descriptors(const sys::ProcDir& process, Collector& collector)
{
    std::string seen;
    bool held = true;
    int stdio = 0;
    for (const DescriptorSeen& fd : TRY(list_descriptors(process))) {
        seen += (seen.empty() ? "" : ",") + std::to_string(fd.number);
        const bool harmless = fd.target.starts_with("pipe:") || fd.target.starts_with("socket:") ||
                              fd.target == "/dev/null" || fd.target.starts_with("/dev/pts/");
        // Above stdio only what execve closes: the report socket.
        if (fd.number <= 2) ++stdio;
        held = held && (fd.number <= 2 ? harmless && !fd.close_on_exec : fd.close_on_exec);
    }
    collector.add("process.descriptors", "stdio only", seen + " (above 2: closed on exec)",
                  held_if(held && stdio == 3));
    return {};
}

// In the leaf that was made for it, and in the namespaces that were witnessed for PID 1.
Status observe_place(const plan::PlanContent& plan, const Binding& binding,
                     const sys::ProcDir& init, const sys::ProcDir& process, Collector& collector)
{
    const auto lines = TRY(process.cgroup());
    const bool v1 = plan.resources.version == plan::CgroupVersion::v1;
    const std::string prefix = binding.cgroup + "/workload/";
    bool inside = true;
    std::string where;
    for (const std::string& controller : plan.resources.controllers) {
        const std::string path = cgroup_path(lines, v1 ? controller : "");
        inside = inside && path.starts_with(prefix) && (where.empty() || where == path);
        where = path;
    }
    collector.add("session.cgroup", prefix + "*", escaped(where), held_if(inside));
    bool same = true;
    std::string odd;
    for (const std::string& kind : plan.security.namespaces) {
        const std::string name = kind == "mount" ? "mnt" : kind;
        if (TRY(process.namespace_inode(name)) == TRY(init.namespace_inode(name))) continue;
        same = false;
        odd += " " + kind;
    }
    collector.add("session.namespaces", "as PID 1's", same ? "as PID 1's" : "other:" + odd,
                  held_if(same));
    return {};
}

}  // namespace

Result<std::vector<Evidence>> observe_session(const plan::ExecutionPlan& plan,
                                              const Binding& binding, int init_pid, int pid,
                                              const wire::Confined& report)
{
    Collector collector(plan.content());
    const sys::ProcDir init = TRY(sys::ProcDir::open(init_pid));
    const sys::ProcDir process = TRY_WITH(sys::ProcDir::open(pid),
                                          "read the session's leader from outside");
    const sys::ProcStatus status = TRY(process.status());
    if (status.ns_pid.empty() || status.ns_pid.back() != static_cast<pid_t>(report.pid))
        return fail(Code::conflict, "process " + std::to_string(pid) +
                                        " is not the one that "
                                        "reported itself as " +
                                        std::to_string(report.pid));
    observe_identity(plan.content(), binding, status, report, collector);
    TRY_VOID(observe_rights(plan.content(), init, status, report, collector));
    TRY_VOID(observe_process(plan.content(), process, status, collector));
    TRY_VOID(observe_descriptors(process, collector));
    TRY_VOID(observe_place(plan.content(), binding, init, process, collector));
    return collector.take();
}

Result<int> find_session_pid(const plan::ExecutionPlan& plan, const Binding& binding,
                             std::string_view session, int inner_pid)
{
    const auto host = TRY(host_cgroups());
    const std::string path = binding.cgroup + "/workload/" + std::string(session);
    // Found in one hierarchy; that it is in the others too is read from the process itself
    // (observe_place).
    for (const std::string& controller : plan->resources.controllers) {
        for (const pid_t pid : TRY(sys::cgroup::members(host, controller, path))) {
            const auto process = sys::ProcDir::open(pid);
            if (!process) continue;  // ended meanwhile
            const auto status = process->status();
            if (status && !status->ns_pid.empty() && status->ns_pid.back() == inner_pid) return pid;
        }
    }
    return fail(Code::not_found, "session " + escaped(session) + " of plan " + plan.digest().str() +
                                     " has no process " + std::to_string(inner_pid) +
                                     " in its cgroup");
}

}  // namespace sandbox::driver
