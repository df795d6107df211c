// SPDX-License-Identifier: Apache-2.0
#include "resolve/limits.hpp"

#include <algorithm>

#include "profile/check.hpp"
#include "resolve/microvm.hpp"
#include "resolve/steps.hpp"

namespace sandbox::resolve {

namespace name = facts::name;
using plan::CgroupSetting;
using plan::CgroupVersion;

namespace {

// A longer period would let a burst run; a shorter one costs scheduling.
constexpr std::uint32_t kPeriod = 100'000;     // µs; the kernel's default (kernel/sched/fair.c)
constexpr std::uint32_t kLeastMilliCpus = 10;  // min_cfs_quota_period 1 ms of the period above

// What the kernel would do anyhow: without it "planned" and "observed" would differ.
std::uint64_t whole_pages(Bytes bytes) { return bytes.count / kPage * kPage; }

class Limits {
public:
    Limits(Draft& draft, const profile::Resources& asked) : draft_(draft), asked_(asked) {}

    plan::ResourcePlan run() &&
    {
        choose_version();
        pids();
        memory();
        cpu();
        cpuset();
        io();
        kill();
        auto& controllers = plan().controllers;
        std::sort(controllers.begin(), controllers.end());
        controllers.erase(std::unique(controllers.begin(), controllers.end()), controllers.end());
        return std::move(plan_);
    }

private:
    plan::ResourcePlan& plan() { return plan_; }
    bool v2() const { return plan_.version == CgroupVersion::v2; }

    // Where the pids controller is writable, there are the limits: a host may have both
    // hierarchies.
    void choose_version()
    {
        draft_.require(name::kCgroupHierarchy, "cgroups-unavailable", "resources",
                       "limits are held by cgroups");
        const std::string version = draft_.value_of(name::kCgroupPids);
        if (version == "v2") plan().version = CgroupVersion::v2;
        if (version == "v1") plan().version = CgroupVersion::v1;
    }

    // The controller is writable, in the same hierarchy as the others.
    bool join(std::string_view fact, std::string_view controller, std::string_view key,
              const std::string& requirement)
    {
        // "pids-controller-unavailable": one reason for each controller.
        const std::string reason = std::string(controller) + "-controller-unavailable";
        if (!draft_.require(fact, reason, key, requirement)) return false;
        const std::string where = draft_.value_of(fact);
        if (where != to_string(plan().version)) {
            draft_.deny({.denial_class = DenialClass::required_control_unavailable,
                         .reason = "controllers-in-two-hierarchies",
                         .key = std::string(key),
                         .requirement = requirement,
                         .fact = draft_.describe(fact) + ", the pids controller is in " +
                                 std::string(to_string(plan().version)),
                         .mend = "boot with all controllers in one hierarchy "
                                 "(systemd.unified_cgroup_hierarchy=1)",
                         .source = {}});
            return false;
        }
        // Joined controllers are enabled for the leaves below, and are part of the plan.
        plan().controllers.emplace_back(controller);
        return true;
    }

    void set(std::string_view controller, std::string_view file, std::string value)
    {
        plan().workload.push_back({std::string(controller), std::string(file), std::move(value)});
    }
    void set_control(std::string_view controller, std::string_view file, std::uint64_t value)
    {
        plan().control.push_back(
            {std::string(controller), std::string(file), std::to_string(value)});
    }

    void pids()
    {
        // Always: a baseline holds in every sandbox, whatever the profile says.
        if (!join(name::kCgroupPids, "pids", "resources.pids",
                  "pids = " + std::to_string(asked_.pids))) {
            return;
        }
        set("pids", "pids.max", std::to_string(asked_.pids));
        set_control("pids", "pids.max", kControlPids);
    }

    void memory()
    {
        // In v1 swap is counted with memory, in v2 apart; without a memory limit neither is a
        // limit.
        if (!asked_.memory && asked_.swap) {
            invalid("swap-without-memory", "resources.swap", "swap = " + format(*asked_.swap),
                    "set resources.memory too: swap counts on top of it");
        }
        const std::string requirement = asked_.memory
                                            ? "memory = " + format(*asked_.memory)
                                            : std::string("PID 1's own leaf has a memory limit");
        if (!join(name::kCgroupMemory, "memory", "resources.memory", requirement)) return;
        // PID 1 is never in the workload's cgroup: a memory hog must not take it with it (facts).
        set_control("memory", v2() ? "memory.max" : "memory.limit_in_bytes", kControlMemory);
        if (!asked_.memory) return;
        // Down to whole pages: never more than was asked for.
        const std::uint64_t memory = whole_pages(*asked_.memory);
        const std::uint64_t swap = whole_pages(asked_.swap.value_or(Bytes{0}));
        if (memory == 0) {
            invalid("memory-too-small", "resources.memory", requirement,
                    "ask for more than a page");
            return;
        }
        set("memory", v2() ? "memory.max" : "memory.limit_in_bytes", std::to_string(memory));
        // Without this file a memory limit only moves the workload to the host's swap, so its
        // absence is a denial. No swap asked for means none.
        if (!draft_.require(name::kCgroupSwap, "swap-limit-unavailable",
                            asked_.swap ? "resources.swap" : "resources.memory",
                            "swap = " + format(asked_.swap.value_or(Bytes{0})))) {
            return;
        }
        if (v2()) {
            // Not memory.oom.group: it would end every session for what one of them did, and a
            // parent with its child, which v1 does not.
            set("memory", "memory.swap.max", std::to_string(swap));
        } else if (memory > profile::kMostInteger - swap) {
            invalid("memory-too-large", "resources.swap", "memory and swap together",
                    "ask for less swap");
        } else {
            // Above 2^53 - 1 the sum has no canonical form; the kernel's own ceiling is far below.
            // v1 counts memory and swap together; it must not be below the memory limit.
            set("memory", "memory.memsw.limit_in_bytes", std::to_string(memory + swap));
        }
    }

    void cpu()
    {
        const bool wanted = asked_.cpus || asked_.cpu_weight;
        if (!wanted) {
            // Not asked for; joined where it is to be had, so that usage can be told.
            if (draft_.rely_on(name::kCgroupCpu) && !v2() &&
                draft_.value_of(name::kCgroupCpu) == "v1") {
                plan().controllers.insert(plan().controllers.end(), {"cpu", "cpuacct"});
            }
            return;
        }
        const std::string key = asked_.cpus ? "resources.cpus" : "resources.cpu_weight";
        // One requirement for both: whatever is asked, the controller is needed.
        const std::string requirement = asked_.cpus
                                            ? "cpus = " + format(*asked_.cpus)
                                            : "cpu_weight = " + std::to_string(*asked_.cpu_weight);
        if (!join(name::kCgroupCpu, "cpu", key, requirement)) return;
        // v1 counts usage in a controller of its own, usually mounted with cpu.
        if (!v2()) plan().controllers.emplace_back("cpuacct");
        if (asked_.cpus) cpu_quota(requirement);
        if (asked_.cpu_weight) cpu_weight(*asked_.cpu_weight);
    }

    void cpu_quota(const std::string& requirement)
    {
        // The kernel refuses a quota below 1 ms, sched-bwc.rst.
        if (asked_.cpus->count < kLeastMilliCpus) {
            invalid("cpus-too-small", "resources.cpus", requirement, "ask for at least 0.01");
            return;
        }
        // Thousandths of a CPU in each period.
        const std::uint64_t quota = std::uint64_t{asked_.cpus->count} * (kPeriod / 1000);
        if (v2()) {
            set("cpu", "cpu.max", std::to_string(quota) + " " + std::to_string(kPeriod));
        } else {
            // Period first: the quota is a share of it, and the kernel judges the pair at each
            // write.
            set("cpu", "cpu.cfs_period_us", std::to_string(kPeriod));
            set("cpu", "cpu.cfs_quota_us", std::to_string(quota));
        }
    }

    void cpu_weight(std::uint32_t weight)
    {
        if (v2()) {
            set("cpu", "cpu.weight", std::to_string(weight));
            return;
        }
        // sched_weight_from_cgroup(), include/linux/cgroup.h: weight * 1024 / 100, rounded.
        const std::uint64_t shares = (std::uint64_t{weight} * 1024 + 50) / 100;
        set("cpu", "cpu.shares", std::to_string(shares));
    }

    void cpuset()
    {
        if (!asked_.cpuset) return;
        const std::string requirement = "cpuset = " + *asked_.cpuset;
        if (!join(name::kCgroupCpuset, "cpuset", "resources.cpuset", requirement)) return;
        // Compared in one form: 0-3 and 0,1,2,3 are the same CPUs.
        const auto online = profile::canonical_cpuset(draft_.value_of(name::kOnlineCpus));
        const auto wanted = profile::canonical_cpuset(*asked_.cpuset);
        if (!online || !wanted || !profile::cpuset_within(*wanted, *online)) {
            draft_.deny({.denial_class = DenialClass::required_control_unavailable,
                         .reason = "cpuset-not-online",
                         .key = "resources.cpuset",
                         .requirement = requirement,
                         .fact = draft_.describe(name::kOnlineCpus),
                         .mend = online ? "choose from " + *online : "probe this host again",
                         .source = {}});
            return;
        }
        set("cpuset", "cpuset.cpus", *wanted);
    }

    void io()
    {
        if (!asked_.io_weight) return;
        const std::string requirement = "io_weight = " + std::to_string(*asked_.io_weight);
        // v1's blkio.weight depends on the disk's scheduler and promises nothing.
        if (!draft_.rely_on(name::kCgroupIo) || draft_.value_of(name::kCgroupIo) != "v2" || !v2()) {
            draft_.deny({.denial_class = DenialClass::unsupported_requirement,
                         .reason = "io-weight-unsupported",
                         .key = "resources.io_weight",
                         .requirement = requirement,
                         .fact = draft_.describe(name::kCgroupIo),
                         .mend = "remove io_weight, or use a host with the io controller on "
                                 "cgroup v2",
                         .source = {}});
            return;
        }
        plan().controllers.emplace_back("io");
        set("io", "io.weight", "default " + std::to_string(*asked_.io_weight));
    }

    void kill()
    {
        // Whatever kills must reach what forks meanwhile.
        draft_.require(name::kCgroupKill, "cgroup-kill-unavailable", "resources",
                       "everything of a sandbox can be killed at once");
        if (plan().version != CgroupVersion::v1) return;
        // Frozen before it is signalled: otherwise a fork bomb outruns the signals.
        join(name::kCgroupFreezer, "freezer", "resources",
             "everything of a sandbox can be stopped before it is killed");
    }

    void invalid(std::string reason, std::string key, std::string requirement, std::string mend)
    {
        draft_.deny({.denial_class = DenialClass::invalid_profile,
                     .reason = std::move(reason),
                     .key = std::move(key),
                     .requirement = std::move(requirement),
                     .fact = "",
                     .mend = std::move(mend),
                     .source = {}});
    }

    Draft& draft_;
    const profile::Resources& asked_;
    plan::ResourcePlan plan_;
};

}  // namespace

plan::ResourcePlan host_limits(Draft& draft, const profile::Resources& asked)
{
    return Limits(draft, asked).run();
}

void resolve_resources(Draft& draft)
{
    if (draft.plan.driver == profile::Driver::microvm) {
        resolve_machine(draft);
    } else {
        draft.plan.resources = host_limits(draft, draft.profile().resources);
    }
}

}  // namespace sandbox::resolve
