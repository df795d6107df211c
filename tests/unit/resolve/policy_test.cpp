// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "world.hpp"

namespace sandbox::resolve {
namespace {

using test::full;
using test::hello;
using test::planned;
using test::verdict;
using test::World;
using testing::ElementsAre;
using testing::HasSubstr;

using Set = std::set<std::string>;

const Denial& first_denial(const Resolution& resolution)
{
    return std::get<std::vector<Denial>>(resolution).front();
}

TEST(ResolvePolicy, NamesTheBundleFileAndLineThatRefuses)
{
    World world = hello();
    world.bundle("drivers").drivers = Set{"microvm"};
    const Resolution resolution = world.resolve();
    ASSERT_THAT(verdict(resolution), ElementsAre("POLICY_DENIED driver-not-permitted isolation"));
    EXPECT_EQ(first_denial(resolution).source, (SourceLocation{"org.d/10-org.toml", 4, 1}));
    EXPECT_THAT(first_denial(resolution).fact, HasSubstr("microvm"));
}

TEST(ResolvePolicy, DeniesEverythingWhileABundleIsBroken)
{
    World world = hello();
    world.broken = {{"org.d/20-bad.toml", "line 3: not TOML"}};
    const Resolution resolution = world.resolve();
    ASSERT_THAT(verdict(resolution), ElementsAre("POLICY_DENIED bundle-broken "));
    EXPECT_EQ(first_denial(resolution).source.file, "org.d/20-bad.toml");
}

TEST(ResolvePolicy, AppliesEveryPermittedSet)
{
    struct Case {
        const char* key;
        policy::PermittedSet policy::Bundle::* set;
        Set permitted;
        const char* denial;
    };
    const std::vector<Case> cases{
        {"isolation", &policy::Bundle::isolation, {"microvm"}, "isolation-not-permitted isolation"},
        {"drivers", &policy::Bundle::drivers, {}, "driver-not-permitted driver"},
        {"isolation_classes",
         &policy::Bundle::isolation_classes,
         {"hardware-vm"},
         "isolation-class-not-permitted isolation"},
        {"network_modes",
         &policy::Bundle::network_modes,
         {"egress"},
         "network-mode-not-permitted network.mode"},
        {"seccomp", &policy::Bundle::seccomp, {"strict"}, "seccomp-not-permitted security.seccomp"},
        {"users", &policy::Bundle::users, {"2000:*"}, "user-not-permitted process.user"},
        {"capabilities",
         &policy::Bundle::capabilities,
         {},
         "capability-not-permitted security.capabilities"}};
    for (const Case& item : cases) {
        World world = full();
        world.bundle(item.key).*item.set = item.permitted;
        EXPECT_THAT(verdict(world), ElementsAre(std::string("POLICY_DENIED ") + item.denial))
            << item.key;
    }
}

TEST(ResolvePolicy, MatchesMountSourcesAsWholePathPrefixes)
{
    World world = hello();
    world.profile.mounts = {test::bind("/srv/database", "/work")};
    world.bundle("mount_sources").mount_sources = Set{"/srv/data"};
    EXPECT_THAT(verdict(world),
                ElementsAre("POLICY_DENIED mount-source-not-permitted mount[0].source"));
    world.profile.mounts = {test::bind("/srv/data/x", "/work")};
    EXPECT_THAT(verdict(world), ElementsAre("planned"));
}

TEST(ResolvePolicy, TreatsAFolderAsRootLikeAMountSource)
{
    World world = hello();
    world.profile.rootfs.source = profile::DirRootfs{HostPath("/srv/root")};
    world.bundle("mount_sources").mount_sources = Set{"/srv/data"};
    EXPECT_THAT(verdict(world),
                ElementsAre("POLICY_DENIED mount-source-not-permitted rootfs.source"));
}

TEST(ResolvePolicy, PermitsTheValueAtEachMaximumAndDeniesOneAbove)
{
    World world = full();
    world.bundle("max.memory").max.memory = world.profile.resources.memory;
    world.bundle("max.cpus").max.cpus = world.profile.resources.cpus;
    world.bundle("max.pids").max.pids = world.profile.resources.pids;
    world.bundle("max.ttl").max.ttl = world.profile.process.timeout;
    EXPECT_THAT(verdict(world), ElementsAre("planned"));
    world.profile.resources.memory = Bytes{world.profile.resources.memory->count + 1};
    world.profile.resources.cpus = MilliCpus{world.profile.resources.cpus->count + 1};
    world.profile.resources.pids += 1;
    world.profile.process.timeout = *world.profile.process.timeout + Millis{1};
    EXPECT_THAT(verdict(world), ElementsAre("POLICY_DENIED timeout-unlimited process.timeout",
                                            "POLICY_DENIED cpus-above-maximum resources.cpus",
                                            "POLICY_DENIED memory-above-maximum resources.memory",
                                            "POLICY_DENIED pids-above-maximum resources.pids"));
}

TEST(ResolvePolicy, TreatsNoLimitAsWiderThanAnyMaximum)
{
    World world = hello();
    world.bundle("max.memory").max.memory = Bytes{1ULL << 40};
    world.bundle("max.cpus").max.cpus = MilliCpus{64'000};
    world.bundle("max.ttl").max.ttl = Millis{1'000'000};
    const Resolution resolution = world.resolve();
    EXPECT_THAT(verdict(resolution),
                ElementsAre("POLICY_DENIED timeout-unlimited process.timeout",
                            "POLICY_DENIED cpus-unlimited resources.cpus",
                            "POLICY_DENIED memory-unlimited resources.memory"));
    EXPECT_THAT(std::get<std::vector<Denial>>(resolution)[2].mend,
                HasSubstr("set resources.memory to at most 1TiB"));
}

TEST(ResolvePolicy, CountsSwapTowardsTheMemoryMaximum)
{
    World world = full();
    world.bundle("max.memory").max.memory = world.profile.resources.memory;
    world.profile.resources.swap = Bytes{4096};
    EXPECT_THAT(verdict(world), ElementsAre("POLICY_DENIED memory-above-maximum resources.memory"));
}

TEST(ResolvePolicy, PlansAMaximumOfSandboxesAsAControlOfTheSupervisor)
{
    World world = hello();
    world.bundle("max.sandboxes").max.sandboxes = 3;
    EXPECT_EQ(test::control(planned(world), "admission.sandboxes"), "supervisor count = at most 3");
}

TEST(ResolvePolicy, AppliesEveryDemand)
{
    World world = full();
    world.bundle("require.read_only_rootfs").require.read_only_rootfs = true;
    world.bundle("require.pinned_digests").require.pinned_digests = true;
    EXPECT_THAT(verdict(world), ElementsAre("planned"));
    world.profile.rootfs.read_only = false;
    world.facts["oci.runtime.pinned"].value = "default";
    world.bundle("require.cgroup_v2").require.cgroup_v2 = true;
    world.bundle("require.log_retention").require.log_retention = Millis{1};
    EXPECT_THAT(verdict(world), ElementsAre("POLICY_DENIED log-retention-not-enforceable ",
                                            "POLICY_DENIED digests-not-pinned driver",
                                            "POLICY_DENIED cgroup-v2-required resources",
                                            "POLICY_DENIED rootfs-not-read-only rootfs.read_only"));
}

// Of the native driver the pins are those of our own programs: crun's say nothing of it.
TEST(ResolvePolicy, AsksNativeForPinsOfOurOwnPrograms)
{
    World world = hello();
    world.profile.driver = profile::Driver::native;
    world.bundle("require.pinned_digests").require.pinned_digests = true;
    world.lose("oci.runtime.pinned");
    world.facts["driver.native"].value = "default";
    EXPECT_THAT(verdict(world), ElementsAre("POLICY_DENIED digests-not-pinned driver"));
    world.facts["driver.native"].value = "config";
    EXPECT_THAT(verdict(world), ElementsAre("planned"));
}

TEST(ResolvePolicy, PermitsCgroupV2WhereItIsDemanded)
{
    World world = full();
    world.facts = test::host("v2");
    world.bundle("require.cgroup_v2").require.cgroup_v2 = true;
    EXPECT_THAT(verdict(world), ElementsAre("planned"));
}

TEST(ResolvePolicy, EntersThePlanByItsDigestOnly)
{
    World world = hello();
    const std::string open = planned(world)->policy_digest;
    world.bundle("max.pids").max.pids = 4096;
    EXPECT_NE(planned(world)->policy_digest, open);
    EXPECT_EQ(planned(world).canonical().find("org.d"), std::string::npos);
}

}  // namespace
}  // namespace sandbox::resolve
