// SPDX-License-Identifier: Apache-2.0
#include "plan/live.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "../resolve/world.hpp"

namespace sandbox::plan {
namespace {

using resolve::test::full;
using resolve::test::hello;
using resolve::test::planned;
using resolve::test::World;
using Edit = std::function<void(profile::Profile&)>;

ExecutionPlan after(World world, const Edit& edit)
{
    edit(world.profile);
    return planned(world);
}

struct Live {
    const char* what;
    Edit edit;
};

// Every key of class live that the resolver accepts today, set, changed and taken away.
std::vector<Live> live_edits()
{
    return {{"memory", [](auto& p) { p.resources.memory = Bytes{256ULL << 20}; }},
            {"no memory",
             [](auto& p) {
                 p.resources.memory = {};
                 p.resources.swap = {};
             }},
            {"swap", [](auto& p) { p.resources.swap = Bytes{64ULL << 20}; }},
            {"cpus", [](auto& p) { p.resources.cpus = MilliCpus{500}; }},
            {"no cpus", [](auto& p) { p.resources.cpus = {}; }},
            {"cpu_weight", [](auto& p) { p.resources.cpu_weight = 77; }},
            {"cpuset", [](auto& p) { p.resources.cpuset = "1"; }},
            {"pids", [](auto& p) { p.resources.pids = 9; }},
            {"a label", [](auto& p) { p.labels["team"] = "ops"; }},
            {"no labels", [](auto& p) { p.labels.clear(); }},
            {"stop_timeout", [](auto& p) { p.lifecycle.stop_timeout = Millis{1}; }},
            {"autostart", [](auto& p) { p.lifecycle.autostart = true; }}};
}

TEST(PlanLiveRevision, OfLiveKeysOnlyIsThePlanThatTheResolverMakes)
{
    const ExecutionPlan runs = planned(full());
    for (const Live& live : live_edits()) {
        const ExecutionPlan wanted = after(full(), live.edit);
        ASSERT_NE(runs, wanted) << live.what;
        EXPECT_TRUE(all_live(split_changes(runs, wanted))) << live.what;
        const auto revision = live_revision(runs, wanted);
        ASSERT_TRUE(revision) << live.what << ": " << revision.error().message();
        EXPECT_EQ(revision->canonical(), wanted.canonical()) << live.what;
    }
}

TEST(PlanLiveRevision, OfAnEqualPlanIsThatPlan)
{
    const ExecutionPlan runs = planned(full());
    EXPECT_EQ(live_revision(runs, runs).value(), runs);
}

TEST(PlanLiveRevision, IsRefusedForEveryOtherKeyAndNamesIt)
{
    const std::vector<std::pair<std::string, Edit>> others{
        {"process.argv", [](auto& p) { p.process.argv = {"/bin/other"}; }},
        {"process.env.A", [](auto& p) { p.process.env["A"] = "1"; }},
        {"process.user", [](auto& p) { p.process.user = {7, 7}; }},
        {"mask", [](auto& p) { p.masks.clear(); }},
        {"mount", [](auto& p) { p.mounts.back().size = Bytes{1ULL << 20}; }},
        {"security.seccomp",
         [](auto& p) { p.security.seccomp = profile::SeccompProfile::strict; }}};
    const ExecutionPlan runs = planned(full());
    for (const auto& [key, edit] : others) {
        const auto revision = live_revision(runs, after(full(), [&](profile::Profile& p) {
                                                p.resources.pids = 9;
                                                edit(p);
                                            }));
        ASSERT_FALSE(revision) << key;
        EXPECT_EQ(revision.error().code(), Code::conflict);
        EXPECT_NE(revision.error().message().find(key), std::string::npos)
            << revision.error().message();
    }
}

TEST(PlanLiveRevision, KeepsWhatRunsWhereTheReleaseHasChangedToo)
{
    const ExecutionPlan runs = planned(full());
    PlanContent content = after(full(), [](auto& p) { p.resources.pids = 9; }).content();
    content.artifacts["sandbox-init"] = "sha256:" + std::string(64, 'f');
    content.security.seccomp_digest = "sha256:" + std::string(64, 'e');
    const ExecutionPlan wanted = ExecutionPlan::seal(std::move(content)).value();
    const ExecutionPlan revision = live_revision(runs, wanted).value();
    EXPECT_EQ(revision->artifacts, runs->artifacts);
    EXPECT_EQ(revision->security, runs->security);
    EXPECT_EQ(revision->resources, wanted->resources);
    EXPECT_EQ(resolve::test::control(revision, "limit.pids"), "cgroup v1 pids.max = 9");
}

TEST(PlanLiveRevision, NeverJoinsAnotherHierarchyUnderRunningProcesses)
{
    const ExecutionPlan runs = planned(hello());
    const auto revision = live_revision(runs,
                                        after(hello(), [](auto& p) { p.resources.cpuset = "0"; }));
    ASSERT_FALSE(revision);
    EXPECT_NE(revision.error().message().find("cpuset"), std::string::npos);
}

TEST(PlanLiveRevision, WithoutTheCpusetStaysInItsHierarchy)
{
    const ExecutionPlan runs = planned(full());
    const ExecutionPlan revision =
        live_revision(runs, after(full(), [](auto& p) { p.resources.cpuset = {}; })).value();
    EXPECT_EQ(revision->resources.controllers, runs->resources.controllers);
    EXPECT_EQ(resolve::test::control(revision, "limit.cpuset"), "(no such control)");
    EXPECT_EQ(resolve::test::control(revision, "cgroup.own"),
              resolve::test::control(runs, "cgroup.own"));
}

TEST(PlanLiveRevision, OnCgroupV2PassesAnotherControllerOn)
{
    World world = hello();
    world.facts = resolve::test::host("v2");
    const ExecutionPlan runs = planned(world);
    const ExecutionPlan wanted = after(world, [](auto& p) { p.resources.cpus = MilliCpus{500}; });
    const ExecutionPlan revision = live_revision(runs, wanted).value();
    EXPECT_EQ(revision->resources, wanted->resources);
    EXPECT_EQ(revision, wanted);
    EXPECT_EQ(live_revision(wanted, runs).value(), runs);
}

TEST(PlanLiveRevision, LeavesTheSizeOfAMachineAlone)
{
    const ExecutionPlan runs = planned(resolve::test::guest("tcg"));
    const auto limited = live_revision(
        runs, after(resolve::test::guest("tcg"), [](auto& p) { p.resources.pids = 9; }));
    ASSERT_FALSE(limited);
    EXPECT_EQ(limited.error().code(), Code::conflict);
    // A bigger host would make a bigger machine; this one runs, and only its label changes.
    World bigger = resolve::test::guest("tcg");
    bigger.facts["host.memory"].value = "137438953472";
    const auto labelled = live_revision(runs,
                                        after(bigger, [](auto& p) { p.labels["team"] = "ops"; }));
    ASSERT_TRUE(labelled) << labelled.error().message();
    EXPECT_EQ((*labelled)->microvm, runs->microvm);
    EXPECT_EQ((*labelled)->resources, runs->resources);
    EXPECT_EQ((*labelled)->request.labels.at("team"), "ops");
}

TEST(PlanChanges, TellWhatTheProfileSaysFromWhatFollowsFromTheHost)
{
    const ExecutionPlan runs = planned(hello());
    PlanContent content = runs.content();
    content.artifacts["sandbox-init"] = "sha256:" + std::string(64, 'f');
    const Changes derived = split_changes(runs, ExecutionPlan::seal(std::move(content)).value());
    EXPECT_TRUE(derived.request.empty());
    ASSERT_EQ(derived.derived.size(), 1U);
    EXPECT_EQ(derived.derived[0].key, "plan.artifacts.sandbox-init");
    const Changes request = split_changes(
        runs, after(hello(), [](auto& p) { p.process.argv.push_back("x"); }));
    EXPECT_FALSE(all_live(request));
    EXPECT_EQ(request.request.size(), 1U);
}

}  // namespace
}  // namespace sandbox::plan
