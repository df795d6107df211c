// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>

#include "world.hpp"

namespace sandbox::resolve {
namespace {

using plan::CgroupSetting;
using plan::CgroupVersion;
using test::control;
using test::full;
using test::hello;
using test::planned;
using test::verdict;
using test::World;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;

World on(const char* version, World world)
{
    world.facts = test::host(version);
    return world;
}

TEST(ResolveResources, AlwaysHoldsAPidsBaselineAndTheControlLeaf)
{
    const auto v1 = planned(on("v1", hello()))->resources;
    EXPECT_EQ(v1.version, CgroupVersion::v1);
    EXPECT_THAT(v1.workload, ElementsAre(CgroupSetting{"pids", "pids.max", "512"}));
    EXPECT_THAT(v1.control,
                ElementsAre(CgroupSetting{"pids", "pids.max", "64"},
                            CgroupSetting{"memory", "memory.limit_in_bytes", "67108864"}));
    const auto v2 = planned(on("v2", hello()))->resources;
    EXPECT_EQ(v2.version, CgroupVersion::v2);
    EXPECT_THAT(v2.control, ElementsAre(CgroupSetting{"pids", "pids.max", "64"},
                                        CgroupSetting{"memory", "memory.max", "67108864"}));
}

TEST(ResolveResources, SpellsEveryLimitForCgroupV1InWriteOrder)
{
    const auto plan = planned(on("v1", full()));
    EXPECT_THAT(plan->resources.workload,
                ElementsAre(CgroupSetting{"pids", "pids.max", "128"},
                            CgroupSetting{"memory", "memory.limit_in_bytes", "536870912"},
                            CgroupSetting{"memory", "memory.memsw.limit_in_bytes", "536870912"},
                            CgroupSetting{"cpu", "cpu.cfs_period_us", "100000"},
                            CgroupSetting{"cpu", "cpu.cfs_quota_us", "150000"},
                            CgroupSetting{"cpu", "cpu.shares", "2048"},
                            CgroupSetting{"cpuset", "cpuset.cpus", "0-1"}));
    EXPECT_THAT(plan->resources.controllers,
                ElementsAre("cpu", "cpuacct", "cpuset", "freezer", "memory", "pids"));
    EXPECT_EQ(control(plan, "limit.memory"), "cgroup v1 memory.limit_in_bytes = 536870912");
    EXPECT_EQ(control(plan, "cgroup.kill"), "freezer and signal = whole tree");
}

TEST(ResolveResources, SpellsEveryLimitForCgroupV2InWriteOrder)
{
    World world = on("v2", full());
    world.profile.resources.io_weight = 300;
    const auto plan = planned(world);
    EXPECT_THAT(plan->resources.workload,
                ElementsAre(CgroupSetting{"pids", "pids.max", "128"},
                            CgroupSetting{"memory", "memory.max", "536870912"},
                            CgroupSetting{"memory", "memory.swap.max", "0"},
                            CgroupSetting{"cpu", "cpu.max", "150000 100000"},
                            CgroupSetting{"cpu", "cpu.weight", "200"},
                            CgroupSetting{"cpuset", "cpuset.cpus", "0-1"},
                            CgroupSetting{"io", "io.weight", "default 300"}));
    EXPECT_THAT(plan->resources.controllers, ElementsAre("cpu", "cpuset", "io", "memory", "pids"));
    EXPECT_EQ(control(plan, "cgroup.kill"), "cgroup.kill = whole tree");
}

TEST(ResolveResources, HaveAControlForEverySetting)
{
    for (const char* version : {"v1", "v2"}) {
        const auto plan = planned(on(version, full()));
        const auto limits = std::count_if(
            plan->controls.begin(), plan->controls.end(),
            [](const auto& control) { return control.name.starts_with("limit."); });
        EXPECT_EQ(static_cast<std::size_t>(limits),
                  plan->resources.workload.size() + plan->resources.control.size());
    }
}

TEST(ResolveResources, RoundMemoryDownToWholePagesAsTheKernelReadsItBack)
{
    World world = hello();
    world.profile.resources.memory = Bytes{(1U << 20) + 4095};
    world.profile.resources.swap = Bytes{8191};
    EXPECT_EQ(control(planned(world), "limit.memory"), "cgroup v1 memory.limit_in_bytes = 1048576");
    EXPECT_EQ(control(planned(world), "limit.swap"),
              "cgroup v1 memory.memsw.limit_in_bytes = 1052672");
}

TEST(ResolveResources, ConvertWeightsToSharesAsTheKernelDoes)
{
    // sched_weight_from_cgroup(): the default 100 is 1024 shares, 1 is 10, 10000 is 102400.
    for (const auto& [weight, shares] : std::map<std::uint32_t, const char*>{
             {1, "10"}, {3, "31"}, {100, "1024"}, {10000, "102400"}}) {
        World world = hello();
        world.profile.resources.cpu_weight = weight;
        EXPECT_EQ(control(planned(world), "limit.cpu_weight"),
                  std::string("cgroup v1 cpu.shares = ") + shares);
    }
}

TEST(ResolveResources, RefuseValuesThatMeanNothing)
{
    World world = hello();
    world.profile.resources.memory = Bytes{4095};
    EXPECT_THAT(verdict(world), ElementsAre("INVALID_PROFILE memory-too-small resources.memory"));
    world = hello();
    world.profile.resources.swap = Bytes{4096};
    EXPECT_THAT(verdict(world), ElementsAre("INVALID_PROFILE swap-without-memory resources.swap"));
    world = hello();
    world.profile.resources.cpus = MilliCpus{9};
    EXPECT_THAT(verdict(world), ElementsAre("INVALID_PROFILE cpus-too-small resources.cpus"));
}

TEST(ResolveResources, RefuseALimitWhoseControllerIsNotToBeHad)
{
    const std::map<std::string, std::string> wanted{
        {"cgroup.cpu", "REQUIRED_CONTROL_UNAVAILABLE cpu-controller-unavailable resources.cpus"},
        {"cgroup.cpuset",
         "REQUIRED_CONTROL_UNAVAILABLE cpuset-controller-unavailable resources.cpuset"},
        {"cgroup.swap", "REQUIRED_CONTROL_UNAVAILABLE swap-limit-unavailable resources.swap"}};
    for (const char* version : {"v1", "v2"}) {
        for (const auto& [fact, denial] : wanted) {
            World world = on(version, full());
            world.lose(fact);
            EXPECT_THAT(verdict(world), ElementsAre(denial)) << version;
        }
    }
}

TEST(ResolveResources, DoNotNeedAControllerNothingAsksFor)
{
    World world = on("v1", hello());
    for (const char* fact : {"cgroup.cpu", "cgroup.cpuset", "cgroup.swap"}) world.lose(fact);
    EXPECT_THAT(planned(world)->resources.controllers, ElementsAre("freezer", "memory", "pids"));
}

TEST(ResolveResources, RefuseControllersInTwoHierarchies)
{
    World world = on("v1", full());
    world.facts["cgroup.memory"].value = "v2";
    EXPECT_THAT(verdict(world), ElementsAre("REQUIRED_CONTROL_UNAVAILABLE "
                                            "controllers-in-two-hierarchies resources.memory"));
}

TEST(ResolveResources, RefuseCpusThatAreNotOnline)
{
    World world = on("v1", full());
    world.profile.resources.cpuset = "0-4";
    EXPECT_THAT(verdict(world),
                ElementsAre("REQUIRED_CONTROL_UNAVAILABLE cpuset-not-online resources.cpuset"));
    world.profile.resources.cpuset = "0,3";
    EXPECT_THAT(verdict(world), ElementsAre("planned"));
    world.facts.erase("host.cpuset");
    EXPECT_THAT(verdict(world),
                ElementsAre("REQUIRED_CONTROL_UNAVAILABLE cpuset-not-online resources.cpuset"));
}

TEST(ResolveSecurity, StartsFromNoCapabilityAndTheDefaultFilter)
{
    const auto plan = planned(hello());
    EXPECT_EQ(control(plan, "capabilities"), "capability sets = none");
    EXPECT_EQ(control(plan, "no_new_privileges"), "no_new_privs = 1");
    EXPECT_EQ(control(plan, "seccomp.filter"),
              "seccomp-bpf allowlist default = " + test::digest_of('1'));
    EXPECT_EQ(control(plan, "id_map"), "user namespace id map = 65536 ids, host root unmapped");
}

TEST(ResolveSecurity, PlansTheStrictFilterByItsOwnDigest)
{
    World world = hello();
    world.profile.security.seccomp = profile::SeccompProfile::strict;
    EXPECT_EQ(planned(world)->security.seccomp_digest, test::digest_of('2'));
    world.lose("seccomp.rules.strict");
    EXPECT_THAT(verdict(world), ElementsAre("REQUIRED_CONTROL_UNAVAILABLE "
                                            "seccomp-rules-unavailable security.seccomp"));
}

TEST(ResolveSecurity, RefusesCapabilitiesThatReachTheKernel)
{
    for (const char* capability :
         {"CAP_SYS_ADMIN", "CAP_SYS_MODULE", "CAP_SYS_PTRACE", "CAP_NET_ADMIN", "CAP_NET_RAW",
          "CAP_BPF", "CAP_FSETID", "CAP_SYS_RESOURCE", "CAP_MKNOD"}) {
        World world = hello();
        world.profile.security.capabilities = {capability};
        EXPECT_THAT(verdict(world), ElementsAre("UNSUPPORTED_REQUIREMENT capability-not-grantable "
                                                "security.capabilities[0]"))
            << capability;
    }
}

TEST(ResolveSecurity, PlansLandlockWhereItIsAndSaysWhereItIsNot)
{
    World world = hello();
    EXPECT_EQ(control(planned(world), "landlock"), "Landlock ruleset = abi 7: paths");
    world.facts["landlock.abi"].value = "9";
    EXPECT_EQ(planned(world)->security.landlock_abi, 7U);
    world.lose("landlock.abi");
    const auto plan = planned(world);
    ASSERT_EQ(plan->unenforced.size(), 1U);
    EXPECT_EQ(plan->unenforced[0].name, "landlock");
    EXPECT_EQ(control(plan, "landlock"), "(no such control)");
}

// The budget is 1 ms on an idle machine; the bound here only catches a change of order.
TEST(ResolveSpeed, OfAFullProfileStaysWithinItsBudget)
{
    const World world = full();
    const auto policy = policy::EffectivePolicy::meet({});
    const facts::CapabilitySnapshot snapshot(world.facts);
    const Request request{world.profile, world.where};
    constexpr int kRounds = 200;
    const auto start = std::clock();  // of this process: what others do is not in it
    for (int i = 0; i < kRounds; ++i) {
        ASSERT_TRUE(test::is_plan(resolve(request, policy, snapshot)));
    }
    const double each = static_cast<double>(std::clock() - start) * 1e6 / CLOCKS_PER_SEC / kRounds;
    std::printf("resolve of a full profile: %.0f us\n", each);
    EXPECT_LT(each, 10'000);
}

}  // namespace
}  // namespace sandbox::resolve
