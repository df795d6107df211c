// SPDX-License-Identifier: Apache-2.0
#include "probe/probe.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "census.hpp"
#include "probe/kvm.hpp"
#include "probe/tasks.hpp"
#include "probe/tiny_program.hpp"
#include "sys/cgroup/cgroup.hpp"
#include "sys/deadline.hpp"
#include "sys/file.hpp"
#include "sys/process.hpp"

namespace sandbox::probe {
namespace {

namespace name = facts::name;
using facts::FactStatus;
using test::Scratch;
using test::take_census;

constexpr std::chrono::milliseconds kPatience{60000};

ProbeSettings standard()
{
    ProbeSettings settings;
    fill_standard_paths(settings, "/nonexistent");
    settings.child_deadline = kPatience;
    return settings;
}

// Runs one task for real and proves that it left nothing.
std::map<std::string, facts::Fact> run_clean(const Task& task)
{
    const auto before = take_census();
    auto facts = run_tasks({task}, kPatience);
    const auto after = take_census();
    EXPECT_EQ(before, after) << describe(before) << "became\n" << describe(after);
    for (const std::string_view fact : task.names) EXPECT_TRUE(facts.contains(std::string(fact)));
    return facts;
}

void expect_ok(const std::map<std::string, facts::Fact>& facts, std::string_view fact)
{
    const auto& entry = facts.at(std::string(fact));
    EXPECT_EQ(entry.status, FactStatus::ok) << fact << ": " << entry.evidence;
    EXPECT_FALSE(entry.value.empty()) << fact;
    EXPECT_FALSE(entry.evidence.empty()) << fact;
}

TEST(ProbeNamespaces, MakesEachKindAndMapsACompleteRange)
{
    const auto facts = run_clean(namespace_task(standard()));
    for (const auto& [fact, entry] : facts) expect_ok(facts, fact);
    EXPECT_EQ(facts.at(std::string(name::kSubordinateIds)).value, "536870912:268435456");
}

TEST(ProbeNamespaces, RefusesARangeBeyondTheLastId)
{
    ProbeSettings settings = standard();
    settings.id_ranges = 65000;
    const auto facts = run_clean(namespace_task(settings));
    const auto& ids = facts.at(std::string(name::kSubordinateIds));
    EXPECT_EQ(ids.status, FactStatus::gap);
    EXPECT_NE(ids.evidence.find("beyond the last id"), std::string::npos) << ids.evidence;
}

TEST(ProbeConfinement, LoadsFiltersAndSealsForReal)
{
    const auto facts = run_clean(confinement_task());
    for (const auto fact :
         {name::kPidfd, name::kMemfdSeal, name::kNoNewPrivileges, name::kSeccomp}) {
        expect_ok(facts, fact);
    }
    // A kernel without Landlock is a gap with the errno; with it, the ABI is a number.
    const auto& landlock = facts.at(std::string(name::kLandlock));
    if (landlock.status == FactStatus::ok)
        EXPECT_GT(std::stoi(landlock.value), 0);
    else
        EXPECT_NE(landlock.evidence.find("errno"), std::string::npos) << landlock.evidence;
}

TEST(ProbeMounts, UsesOverlayIdmapAndRecursiveReadOnly)
{
    const auto facts = run_clean(mount_task(standard()));
    for (const auto& [fact, entry] : facts) expect_ok(facts, fact);
}

TEST(ProbeCgroups, WritesEachLimitAndRemovesItsOwnCgroup)
{
    const ProbeSettings settings = standard();
    const std::string path = probe_cgroup_path(choose_cgroup_parent(settings).path);
    const auto before = take_census();
    const auto facts = run_tasks({cgroup_task(settings, path)}, kPatience);
    EXPECT_FALSE(take_census().cgroups.empty()) << "the check made no cgroup at all";
    sweep_cgroups(path);
    EXPECT_EQ(before, take_census()) << describe(take_census());
    for (const auto fact :
         {name::kCgroupHierarchy, name::kCgroupParent, name::kCgroupMemory, name::kCgroupPids,
          name::kCgroupCpu, name::kCgroupFreezer, name::kCgroupKill}) {
        expect_ok(facts, fact);
    }
}

TEST(ProbeCgroups, SweepEndsMembersAndLeftoversOfDeadProbes)
{
    const auto host = sys::cgroup::detect();
    ASSERT_TRUE(host);
    // A probe that died: its number belongs to nobody any more.
    const pid_t dead = fork();
    if (dead == 0) _exit(0);
    waitpid(dead, nullptr, 0);
    const std::string stale = "/sandbox-probe-" + std::to_string(dead);
    const std::vector<std::string> controllers{"pids"};
    ASSERT_TRUE(sys::cgroup::CgroupTree::create(*host, stale, controllers));
    const std::string alive = "/sandbox-probe-" + std::to_string(getppid());
    ASSERT_TRUE(sys::cgroup::CgroupTree::create(*host, alive, controllers));
    sweep_cgroups(probe_cgroup_path("/sandbox"));
    EXPECT_TRUE(sys::cgroup::CgroupTree::find(*host, stale)->empty());
    const auto spared = sys::cgroup::CgroupTree::find(*host, alive);
    EXPECT_FALSE(spared->empty()) << "the cgroup of a live process was taken";
    EXPECT_TRUE(spared->remove(sys::Deadline::after(Millis{500})));
}

// A process that waits in `tree`, under that name, and says so on `ready`; frozen where asked for.
pid_t member_of(const sys::cgroup::CgroupTree& tree, const char* name)
{
    const auto handles = tree.join_handles();
    const auto tasks = handles->task_numbers();
    auto ready = sys::make_pipe();
    auto made = sys::clone_process({.cgroup_dir = handles->dir.get()});
    if (made->pid == 0) {
        prctl(PR_SET_NAME, name);
        if (sys::cgroup::join_self(tasks) != 0) _exit(1);
        if (write(ready->write.get(), "j", 1) != 1) _exit(1);
        while (true) pause();
    }
    ready->write.reset();
    char byte = 0;
    EXPECT_EQ(read(ready->read.get(), &byte, 1), 1);
    return made->pid;
}

TEST(ProbeCgroups, SweepEndsWhatAKilledProbeLeftFrozenAndNobodyElse)
{
    const auto host = sys::cgroup::detect();
    ASSERT_TRUE(host);
    const pid_t dead = fork();
    if (dead == 0) _exit(0);
    waitpid(dead, nullptr, 0);
    const std::vector<std::string> controllers{host->with("freezer") != nullptr ? "freezer"
                                                                                : "pids"};
    for (const char* name : {"sandbox-probe", "somebody"}) {
        const std::string stale = "/sandbox-probe-" + std::to_string(dead);
        const auto tree = sys::cgroup::CgroupTree::create(*host, stale, controllers);
        ASSERT_TRUE(tree) << tree.error().message();
        const pid_t member = member_of(*tree, name);
        const bool ours = std::string_view(name) == "sandbox-probe";
        if (ours) {
            ASSERT_TRUE(tree->freeze(sys::Deadline::after(kPatience)));
        }
        sweep_cgroups(probe_cgroup_path("/sandbox"));
        EXPECT_EQ(sys::cgroup::CgroupTree::find(*host, stale)->empty(), ours) << name;
        EXPECT_EQ(waitpid(member, nullptr, ours ? 0 : WNOHANG), ours ? member : 0) << name;
        if (ours) continue;
        kill(member, SIGKILL);
        waitpid(member, nullptr, 0);
        EXPECT_TRUE(tree->remove(sys::Deadline::after(kPatience)));
    }
}

TEST(ProbeCgroups, AProbeKilledWithAFrozenMemberIsStillReaped)
{
    const auto host = sys::cgroup::detect();
    ASSERT_TRUE(host);
    const std::vector<std::string> controllers{host->with("freezer") != nullptr ? "freezer"
                                                                                : "pids"};
    const std::string path = probe_cgroup_path("/sandbox");
    Task task = cgroup_task(standard(), path);
    task.names = {"frozen"};
    task.body = [&](const Reporter& out) {
        const auto tree = sys::cgroup::CgroupTree::create(*host, path, controllers);
        if (!tree) return;
        member_of(*tree, "sandbox-probe");
        if (!tree->freeze(sys::Deadline::after(kPatience))) return;
        out.report("frozen", found("yes", "seen"));
        while (true) pause();
    };
    const auto before = take_census();
    facts::Fact frozen;
    // Longer ones in turn: a busy host takes its time to come as far as the freezing.
    for (const int patience : {200, 2000, 20'000}) {
        frozen = run_tasks({task}, std::chrono::milliseconds(patience)).at("frozen");
        sweep_cgroups(path);
        ASSERT_EQ(before, take_census()) << describe(take_census());
        if (frozen.status == FactStatus::ok) break;
    }
    EXPECT_EQ(frozen.value, "yes") << frozen.evidence;
}

TEST(ProbeCgroups, StandsBesideWhatLaunchesUse)
{
    const std::string own = "sandbox-probe-" + std::to_string(getpid());
    EXPECT_EQ(probe_cgroup_path("/sandbox"), "/" + own);
    EXPECT_EQ(probe_cgroup_path("/a.slice/b/sandbox"), "/a.slice/b/" + own);
}

TEST(ProbeKvm, TellsARealGuestFromAnEmulatedOne)
{
    const auto before = take_census();
    const auto fact = run_tasks({kvm_task(standard())}, kPatience).at(std::string(name::kKvm));
    EXPECT_EQ(before, take_census());
    const bool pvm = access("/sys/module/kvm_pvm", F_OK) == 0;
    if (access("/dev/kvm", R_OK | W_OK) != 0) {
        EXPECT_NE(fact.evidence.find("open /dev/kvm"), std::string::npos) << fact.evidence;
    } else if (pvm) {
        EXPECT_EQ(fact.status, FactStatus::gap) << fact.evidence;
        EXPECT_NE(fact.evidence.find("at int3"), std::string::npos) << fact.evidence;
        EXPECT_NE(fact.evidence.find("(kvm_pvm host)"), std::string::npos) << fact.evidence;
    } else {
        EXPECT_EQ(fact.status, FactStatus::ok) << fact.evidence;
    }
}

TEST(ProbeKvm, NamesADeviceThatIsNoKvm)
{
    EXPECT_NE(run_kvm_guest("/dev/null", std::chrono::milliseconds(50))
                  .evidence.find("KVM_GET_API_VERSION"),
              std::string::npos);
    EXPECT_NE(run_kvm_guest("/nonexistent", std::chrono::milliseconds(50))
                  .evidence.find("No such file or directory (errno 2)"),
              std::string::npos);
}

TEST(ProbeRuntime, StartsAContainerThatKeepsADescriptor)
{
    const auto facts = run_clean(runtime_task(standard()));
    ASSERT_EQ(access("/usr/bin/crun", X_OK), 0) << "dev/deps installs crun";
    expect_ok(facts, name::kOciRuntimeDigest);
    expect_ok(facts, name::kOciRuntimeVersion);
    expect_ok(facts, name::kOciFdPassing);
    expect_ok(facts, name::kOciHybridCover);
    EXPECT_EQ(facts.at(std::string(name::kOciRuntimePinned)).value, "default");
}

TEST(ProbeRuntime, LeavesTheOwnerOfTheNullDeviceAlone)
{
    // crun gives its descriptors 0 to 2 to the container's root.
    struct stat before{};
    struct stat after{};
    ASSERT_EQ(stat("/dev/null", &before), 0);
    probe(standard());
    ASSERT_EQ(stat("/dev/null", &after), 0);
    EXPECT_EQ(after.st_uid, before.st_uid);
    EXPECT_EQ(after.st_ctim.tv_sec, before.st_ctim.tv_sec);
    EXPECT_EQ(after.st_ctim.tv_nsec, before.st_ctim.tv_nsec);
}

TEST(ProbeRuntime, ExecutesNothingThatDiffersFromItsPin)
{
    ProbeSettings settings = standard();
    settings.runtime.pin = Pin{"1.8.1", "sha256:" + std::string(64, '0')};
    const auto facts = run_clean(runtime_task(settings));
    EXPECT_EQ(facts.at(std::string(name::kOciRuntimePinned)).status, FactStatus::gap);
    for (const auto fact : {name::kOciRuntimeVersion, name::kOciFdPassing}) {
        EXPECT_TRUE(facts.at(std::string(fact)).evidence.starts_with("not executed: "))
            << facts.at(std::string(fact)).evidence;
    }
}

TEST(ProbeRuntime, RefusesAProgramThatOthersMayWrite)
{
    const Scratch scratch;
    ProbeSettings settings = standard();
    settings.runtime.path = scratch.write("crun", tiny_exit_program(), 0777);
    const auto facts = run_clean(runtime_task(settings));
    EXPECT_EQ(facts.at(std::string(name::kOciRuntimePath)).status, FactStatus::gap);
    EXPECT_EQ(facts.at(std::string(name::kOciFdPassing)).status, FactStatus::gap);
}

TEST(ProbeRuntime, StartsNoContainerWithAnUnknownProgram)
{
    const Scratch scratch;
    ProbeSettings settings = standard();
    settings.runtime.path = scratch.write("crun", tiny_exit_program(), 0755);
    const auto facts = run_clean(runtime_task(settings));
    EXPECT_EQ(facts.at(std::string(name::kOciRuntimePath)).status, FactStatus::ok);
    EXPECT_EQ(facts.at(std::string(name::kOciRuntimeVersion)).status, FactStatus::gap);
    EXPECT_NE(facts.at(std::string(name::kOciFdPassing)).evidence.find("not tried"),
              std::string::npos);
}

TEST(ProbePrograms, HashesWhatIsThereAndComparesPins)
{
    const Scratch scratch;
    ProbeSettings settings = standard();
    settings.init.path = scratch.write("sandbox-init", "init", 0755);
    settings.shim.path = scratch.write("sandbox-shim", "shim", 0755);
    settings.shim.pin = Pin{"x", canon::digest("another shim")};
    settings.guest_kernel.path = scratch.write("vmlinux", "kernel", 0644);
    const auto facts = run_clean(program_task(settings));
    EXPECT_EQ(facts.at(std::string(name::kInitDigest)).value, canon::digest("init"));
    EXPECT_EQ(facts.at(std::string(name::kGuestKernel)).value, canon::digest("kernel"));
    const auto& shim = facts.at(std::string(name::kShimDigest));
    EXPECT_EQ(shim.status, FactStatus::gap);
    EXPECT_NE(shim.evidence.find(canon::digest("another shim")), std::string::npos);
    EXPECT_EQ(facts.at(std::string(name::kGuestInitrd)).status, FactStatus::gap);
}

TEST(Probe, FindsEveryFactAndLeavesNothing)
{
    const Scratch scratch;
    ProbeSettings settings = standard();
    settings.init.path = scratch.write("sandbox-init", "init", 0755);
    settings.shim.path = scratch.write("sandbox-shim", "shim", 0755);
    const auto before = take_census();
    const auto start = sys::boottime_ns();
    const auto snapshot = probe(settings);
    std::printf("full probe: %.1f ms\n",
                static_cast<double>(sys::boottime_ns() - start) / 1'000'000);
    EXPECT_EQ(before, take_census()) << describe(take_census());
    for (const std::string_view fact : facts::all_names()) {
        ASSERT_NE(snapshot.find(fact), nullptr) << fact;
        EXPECT_FALSE(snapshot.find(fact)->evidence.empty()) << fact;
    }
    EXPECT_EQ(snapshot.facts().size(), facts::all_names().size());
    EXPECT_TRUE(snapshot.ok(name::kDriverOci)) << snapshot.find(name::kDriverOci)->evidence;
    EXPECT_FALSE(snapshot.ok(name::kDriverMicrovm));
    EXPECT_TRUE(recheck_critical(snapshot)) << recheck_critical(snapshot).error().message();
}

TEST(Probe, ComesBackAtTheDeadlineWhateverHangs)
{
    ProbeSettings settings = standard();
    settings.child_deadline = std::chrono::milliseconds(1);
    const auto before = take_census();
    const auto snapshot = probe(settings);
    EXPECT_EQ(before, take_census()) << describe(take_census());
    for (const std::string_view fact : facts::all_names()) {
        EXPECT_NE(snapshot.find(fact), nullptr) << fact;
    }
    EXPECT_FALSE(snapshot.ok(name::kDriverOci));
}

TEST(ProbeRecheck, NoticesAnotherCgroupLayout)
{
    const ProbeSettings settings = standard();
    const std::string path = probe_cgroup_path("/sandbox");
    auto facts = run_tasks({cgroup_task(settings, path)}, kPatience);
    sweep_cgroups(path);
    EXPECT_TRUE(recheck_critical(facts::CapabilitySnapshot(facts)));
    facts.at(std::string(name::kCgroupMemory)).value = "v3";
    const Status changed = recheck_critical(facts::CapabilitySnapshot(facts));
    ASSERT_FALSE(changed);
    EXPECT_NE(changed.error().message().find("memory controller was v3"), std::string::npos);
}

}  // namespace
}  // namespace sandbox::probe
