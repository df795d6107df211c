// SPDX-License-Identifier: Apache-2.0
#include "probe/probe.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <span>

#include <sys/stat.h>
#include <unistd.h>

#include "probe/tasks.hpp"
#include "sys/cgroup/cgroup.hpp"

namespace sandbox::probe {

namespace {

namespace name = facts::name;

void choose(ArtifactSetting& setting, const std::vector<std::string>& candidates)
{
    if (!setting.path.empty()) return;
    for (const std::string& candidate : candidates) {
        struct stat status{};
        if (stat(candidate.c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
            setting.path = candidate;
            return;
        }
    }
    // Nothing is there: the first place is what the gap will name.
    setting.path = candidates.front();
}

// Ours lie beside the running program, or where `ninja install` puts them. In that order, so that a
// build tree finds its own.
std::vector<std::string> own_program(std::string_view program_dir, std::string_view program)
{
    std::vector<std::string> places;
    if (!program_dir.empty()) {
        places.push_back(fmt::format("{}/{}", program_dir, program));
        const std::string_view above = program_dir.substr(0, program_dir.rfind('/'));
        places.push_back(fmt::format("{}/libexec/sandbox/{}", above, program));
    }
    places.push_back(fmt::format("/usr/libexec/sandbox/{}", program));
    return places;
}

// The deepest existing folder of `path` below a hierarchy's root must be writable: a parent that
// does not exist yet is made there.
Status check_writable(const sys::cgroup::Hierarchy& hierarchy, std::string path)
{
    while (true) {
        const std::string folder = hierarchy.mount + path;
        if (access(folder.c_str(), W_OK) == 0) return {};
        if (errno != ENOENT || path.empty()) return fail_errno("access", folder);
        path.resize(path.rfind('/'));
    }
}

}  // namespace

void fill_standard_paths(ProbeSettings& settings, std::string_view program_dir)
{
    choose(settings.runtime, {"/usr/bin/crun", "/usr/local/bin/crun", "/usr/sbin/crun"});
    choose(settings.init, own_program(program_dir, "sandbox-init"));
    choose(settings.shim, own_program(program_dir, "sandbox-shim"));
    choose(settings.vmm, {"/usr/bin/qemu-system-x86_64", "/usr/local/bin/qemu-system-x86_64"});
    choose(settings.virtiofsd, {"/usr/libexec/virtiofsd", "/usr/lib/qemu/virtiofsd"});
}

facts::CapabilitySnapshot probe(const ProbeSettings& settings)
{
    // One name for all checks of this probe, so that one sweep finds them.
    const std::string cgroup = probe_cgroup_path(choose_cgroup_parent(settings).path);
    // The slowest first: they run side by side.
    const std::vector<Task> tasks{
        vmm_task(settings),   runtime_task(settings), cgroup_task(settings, cgroup),
        kvm_task(settings),   program_task(settings), namespace_task(settings),
        mount_task(settings), confinement_task()};
    std::map<std::string, facts::Fact> facts = run_tasks(tasks, settings.child_deadline);
    // After all children ended, and before the facts are judged: the probe leaves nothing.
    sweep_cgroups(cgroup);
    // Facts that the children told win: merge() keeps what is there.
    facts.merge(host_facts());
    derive_drivers(settings, facts);
    return facts::CapabilitySnapshot(std::move(facts));
}

void sweep_leftovers(const ProbeSettings& settings)
{
    sweep_cgroups(probe_cgroup_path(choose_cgroup_parent(settings).path));
}

Status recheck_critical(const facts::CapabilitySnapshot& snapshot)
{
    // What may change while a host runs, and would make a launch fail half-way or hold less than
    // planned.
    const auto host = TRY(sys::cgroup::detect());
    const std::string layout(sys::cgroup::to_string(host.layout));
    if (snapshot.ok(name::kCgroupHierarchy) && snapshot.value(name::kCgroupHierarchy) != layout) {
        return fail(Code::conflict, fmt::format("the cgroup layout was {} and is {}",
                                                snapshot.value(name::kCgroupHierarchy), layout));
    }
    constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kControllers{
        {{name::kCgroupMemory, "memory"},
         {name::kCgroupPids, "pids"},
         {name::kCgroupCpu, "cpu"},
         {name::kCgroupCpuset, "cpuset"}}};
    for (const auto& [fact, controller] : kControllers) {
        // A gap stays a gap until the next probe: only what is relied on is looked at again.
        if (!snapshot.ok(fact)) continue;
        const auto* hierarchy = host.with(controller);
        const std::string_view version = hierarchy == nullptr                             ? "none"
                                         : hierarchy->version == sys::cgroup::Version::v1 ? "v1"
                                                                                          : "v2";
        if (version != snapshot.value(fact)) {
            return fail(Code::conflict, fmt::format("the {} controller was {} and is {}",
                                                    controller, snapshot.value(fact), version));
        }
        TRY_VOID(check_writable(*hierarchy, std::string(snapshot.value(name::kCgroupParent))));
    }
    const std::string runtime(snapshot.value(name::kOciRuntimePath));
    if (!runtime.empty() && access(runtime.c_str(), X_OK) != 0) {
        return fail_errno("access", runtime);
    }
    return {};
}

}  // namespace sandbox::probe
