// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canon/json.hpp"
#include "profile/profile.hpp"
#include "world.hpp"

namespace sandbox::resolve {
namespace {

using test::full;
using test::hello;
using test::planned;
using test::verdict;
using test::World;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

const Denial& first(const Resolution& resolution)
{
    return std::get<std::vector<Denial>>(resolution).front();
}

TEST(ResolveDriver, TakesTheConfiguredDefaultForTheSandboxPosture)
{
    EXPECT_EQ(planned(hello())->driver, profile::Driver::oci);
    EXPECT_EQ(planned(hello())->isolation_class, plan::IsolationClass::shared_kernel);
}

TEST(ResolveDriver, RefusesMicrovmNamingTheGuestFactAndTheMend)
{
    World world = hello();
    world.profile.isolation = profile::Isolation::microvm;
    world.where.erase("isolation");
    const Resolution resolution = world.resolve();
    ASSERT_THAT(verdict(resolution),
                ElementsAre("BACKEND_UNAVAILABLE kvm-guest-unavailable isolation"));
    EXPECT_THAT(first(resolution).fact, HasSubstr("kvm.guest: gap (the guest took no interrupt)"));
    EXPECT_THAT(first(resolution).mend, HasSubstr("isolation = \"sandbox\""));
    EXPECT_THAT(first(resolution).requirement, HasSubstr("the default"));
    EXPECT_EQ(first(resolution).source.file, "hello.toml");
}

TEST(ResolveDriver, RefusesAPinThatGivesLessThanTheAskedClass)
{
    World world = hello();
    world.profile.isolation = profile::Isolation::microvm;
    world.profile.driver = profile::Driver::oci;
    EXPECT_THAT(verdict(world), ElementsAre("INVALID_PROFILE driver-weaker-than-isolation driver"));
}

TEST(ResolveDriver, RefusesWithoutADefaultDriverRatherThanGuessing)
{
    World world = hello();
    world.lose("config.default_driver");
    EXPECT_THAT(verdict(world), ElementsAre("BACKEND_UNAVAILABLE no-default-driver isolation"));
    world.profile.driver = profile::Driver::oci;
    EXPECT_THAT(verdict(world), ElementsAre("planned"));
}

// An ordinary user with everything that the native driver needs.
World user()
{
    World world = hello();
    world.profile.driver = profile::Driver::native;
    world.facts["host.privilege"].value = "user";
    world.facts["helper.newuidmap"] = {facts::FactStatus::ok, "/usr/bin/newuidmap", "there"};
    world.facts["ids.subordinate"] = {facts::FactStatus::ok, "100000:65536", "mapped"};
    return world;
}

TEST(ResolveDriver, AnOrdinaryUserLaunchesWithNative)
{
    const auto plan = planned(user());
    EXPECT_EQ(plan->facts.at("host.privilege").value, "user");
    EXPECT_EQ(plan->facts.at("ids.subordinate").value, "100000:65536");
    // Root's plan relies on none of it.
    World root = user();
    root.facts["host.privilege"].value = "root";
    EXPECT_FALSE(planned(root)->facts.contains("ids.subordinate"));
    EXPECT_FALSE(planned(root)->facts.contains("helper.newuidmap"));
}

TEST(ResolveDriver, NamesWhatAnOrdinaryUserLacks)
{
    const std::map<std::string, std::string> wanted{
        {"helper.newuidmap", "BACKEND_UNAVAILABLE id-helpers-missing driver"},
        {"ids.subordinate", "BACKEND_UNAVAILABLE subordinate-ids-missing driver"},
        {"cgroup.parent", "BACKEND_UNAVAILABLE cgroup-not-delegated driver"},
        {"host.privilege", "BACKEND_UNAVAILABLE root-required driver"}};
    for (const auto& [fact, denial] : wanted) {
        World world = user();
        world.lose(fact);
        EXPECT_THAT(verdict(world), ElementsAre(denial)) << fact;
    }
}

TEST(ResolveDriver, CapabilitiesOfAnOrdinaryUserNeedANetworkOfTheirOwn)
{
    World world = user();
    world.profile.security.capabilities = {"CAP_NET_BIND_SERVICE"};
    EXPECT_THAT(verdict(world), ElementsAre("planned"));
    world.profile.network.mode = profile::NetworkMode::host;
    EXPECT_THAT(verdict(world), ElementsAre("UNSUPPORTED_REQUIREMENT "
                                            "capabilities-without-own-network "
                                            "security.capabilities"));
    world.profile.security.capabilities.clear();
    EXPECT_THAT(verdict(world), ElementsAre("planned"));
}

TEST(ResolveDriver, ABindOfAnOrdinaryUserNeedsWhatOnlyRootCanMap)
{
    World world = user();
    world.lose("mount.idmapped");
    world.profile.mounts = {test::bind("/srv/data", "/work")};
    EXPECT_THAT(verdict(world), ElementsAre("REQUIRED_CONTROL_UNAVAILABLE "
                                            "idmapped-mounts-unavailable mount[0].source"));
}

TEST(ResolveDriver, RefusesAChangedRuntimeAsAnArtifactMismatch)
{
    World world = hello();
    world.lose("oci.runtime.pinned");
    EXPECT_THAT(verdict(world),
                ElementsAre("BACKEND_ARTIFACT_MISMATCH artifact-pin-mismatch driver"));
}

TEST(ResolveDriver, RefusesAnOrdinaryUser)
{
    World world = hello();
    world.facts["host.privilege"].value = "user";
    EXPECT_THAT(verdict(world), ElementsAre("BACKEND_UNAVAILABLE root-required driver"));
}

TEST(ResolveDriver, PinsEveryArtifactByDigest)
{
    const auto plan = planned(hello());
    EXPECT_EQ(plan->artifacts.at("oci.runtime"), test::digest_of('3'));
    EXPECT_EQ(plan->artifacts.at("sandbox-init"), test::digest_of('4'));
    EXPECT_EQ(plan->artifacts.at("sandbox-shim"), test::digest_of('5'));
}

// Each fact the plain profile relies on, with the denial its loss must cause.
TEST(ResolveDriver, RefusesWhenAnyFactItReliesOnIsLost)
{
    const std::map<std::string, std::string> wanted{
        {"driver.oci", "BACKEND_UNAVAILABLE oci-not-available driver"},
        {"host.privilege", "BACKEND_UNAVAILABLE root-required driver"},
        {"oci.runtime.path", "BACKEND_UNAVAILABLE oci-runtime-missing driver"},
        {"oci.runtime.version", "BACKEND_UNAVAILABLE oci-runtime-uncertified driver"},
        {"oci.runtime.digest", "BACKEND_UNAVAILABLE oci-runtime-unreadable driver"},
        {"oci.runtime.preserve_fds", "BACKEND_UNAVAILABLE oci-runtime-drops-descriptors driver"},
        {"oci.runtime.hybrid_cover", "BACKEND_UNAVAILABLE hybrid-cgroups-not-covered driver"},
        {"init.digest", "BACKEND_UNAVAILABLE sandbox-init-missing driver"},
        {"shim.digest", "BACKEND_UNAVAILABLE sandbox-shim-missing driver"},
        {"memfd.sealed_exec", "REQUIRED_CONTROL_UNAVAILABLE sealed-execution-unavailable driver"},
        {"process.pidfd", "REQUIRED_CONTROL_UNAVAILABLE pidfd-unavailable driver"},
        {"namespace.user", "REQUIRED_CONTROL_UNAVAILABLE user-namespace-unavailable isolation"},
        {"namespace.mount", "REQUIRED_CONTROL_UNAVAILABLE mount-namespace-unavailable isolation"},
        {"namespace.pid", "REQUIRED_CONTROL_UNAVAILABLE pid-namespace-unavailable isolation"},
        {"namespace.ipc", "REQUIRED_CONTROL_UNAVAILABLE ipc-namespace-unavailable isolation"},
        {"namespace.uts", "REQUIRED_CONTROL_UNAVAILABLE uts-namespace-unavailable isolation"},
        {"namespace.net", "REQUIRED_CONTROL_UNAVAILABLE net-namespace-unavailable network.mode"},
        {"namespace.cgroup", "REQUIRED_CONTROL_UNAVAILABLE cgroup-namespace-unavailable isolation"},
        {"seccomp.filter", "REQUIRED_CONTROL_UNAVAILABLE seccomp-unavailable security.seccomp"},
        {"seccomp.rules.default",
         "REQUIRED_CONTROL_UNAVAILABLE seccomp-rules-unavailable security.seccomp"},
        {"process.no_new_privs",
         "REQUIRED_CONTROL_UNAVAILABLE no-new-privileges-unavailable security.seccomp"},
        {"mount.recursive_readonly",
         "REQUIRED_CONTROL_UNAVAILABLE recursive-read-only-unavailable rootfs.read_only"},
        {"cgroup.hierarchy", "REQUIRED_CONTROL_UNAVAILABLE cgroups-unavailable resources"},
        {"cgroup.pids", "REQUIRED_CONTROL_UNAVAILABLE pids-controller-unavailable resources.pids"},
        {"cgroup.memory",
         "REQUIRED_CONTROL_UNAVAILABLE memory-controller-unavailable resources.memory"},
        {"cgroup.freezer", "REQUIRED_CONTROL_UNAVAILABLE freezer-controller-unavailable resources"},
        {"cgroup.kill", "REQUIRED_CONTROL_UNAVAILABLE cgroup-kill-unavailable resources"}};
    for (const auto& [fact, denial] : wanted) {
        World world = hello();
        world.lose(fact);
        EXPECT_THAT(verdict(world), Contains(denial)) << fact;
        world.facts.erase(fact);
        EXPECT_THAT(verdict(world), Contains(denial)) << fact << " not probed";
    }
}

TEST(ResolvePlan, RecordsStatusAndValueOfTheFactsItReliedOnAndNoOthers)
{
    World world = hello();
    const auto plan = planned(world);
    for (const auto& [name, fact] : plan->facts) {
        EXPECT_EQ(fact.value, world.facts.at(name).value) << name;
        EXPECT_EQ(fact.status, facts::to_string(world.facts.at(name).status)) << name;
    }
    for (const char* unrelated :
         {"kvm.guest", "cgroup.parent", "kernel.release", "mount.idmapped", "host.cpuset"}) {
        EXPECT_FALSE(plan->facts.contains(unrelated)) << unrelated;
    }
    EXPECT_EQ(plan.canonical().find("tried"), std::string::npos) << "evidence text";
}

TEST(ResolvePlan, DoesNotChangeWithEvidenceText)
{
    World world = full();
    const auto before = planned(world);
    for (auto& [name, fact] : world.facts) fact.evidence += " at another time";
    EXPECT_EQ(planned(world).canonical(), before.canonical());
}

TEST(ResolvePlan, ListsControlsSortedByNameEachOnce)
{
    const auto plan = planned(full());
    EXPECT_TRUE(std::is_sorted(plan->controls.begin(), plan->controls.end()));
    for (std::size_t i = 1; i < plan->controls.size(); ++i) {
        EXPECT_NE(plan->controls[i].name, plan->controls[i - 1].name);
    }
}

TEST(ResolveDenials, AreAllReportedAtOnceInAStableOrder)
{
    World world = full();
    world.profile.security.capabilities = {"CAP_SYS_ADMIN"};
    world.profile.resources.disk = Bytes{1};
    world.lose("namespace.user");
    world.lose("oci.runtime.pinned");
    EXPECT_THAT(verdict(world),
                ElementsAre("UNSUPPORTED_REQUIREMENT disk-limit-unsupported resources.disk",
                            "UNSUPPORTED_REQUIREMENT capability-not-grantable "
                            "security.capabilities[0]",
                            "REQUIRED_CONTROL_UNAVAILABLE user-namespace-unavailable isolation",
                            "BACKEND_ARTIFACT_MISMATCH artifact-pin-mismatch driver"));
}

TEST(ResolveDenials, PointAtTheKeyOrItsNearestWrittenAncestor)
{
    World world = hello();
    world.profile.mounts = {test::bind("/proc", "/x")};
    world.where["mount[0]"] = {"hello.toml", 9, 1};
    const Resolution resolution = world.resolve();
    EXPECT_EQ(first(resolution).key, "mount[0].source");
    EXPECT_EQ(first(resolution).source, (SourceLocation{"hello.toml", 9, 1}));
}

TEST(ResolveDenials, HaveThePublishedJsonShape)
{
    World world = hello();
    world.profile.security.capabilities = {"CAP_SYS_ADMIN"};
    const auto json = to_json(std::get<std::vector<Denial>>(world.resolve()));
    ASSERT_EQ(json.size(), 1U);
    const auto& denial = json["denials"][0];
    for (const char* key : {"class", "reason", "key", "requirement", "fact", "mend", "source"}) {
        EXPECT_TRUE(denial.contains(key)) << key;
    }
    EXPECT_EQ(denial.size(), 7U);
    EXPECT_EQ(denial["source"].size(), 3U);
    EXPECT_EQ(denial["class"], "UNSUPPORTED_REQUIREMENT");
    EXPECT_EQ(denial["source"]["file"], "hello.toml");
}

TEST(ResolveDenials, CannotForgeLinesOfAReport)
{
    Denial denial;
    denial.requirement = "x\ndenied: nothing\x1b[0m";
    const std::string text = render({denial});
    EXPECT_THAT(text, HasSubstr("x\\x0adenied: nothing\\x1b[0m"));
}

TEST(ResolveDenials, BecomeAnAuditRecordFieldByField)
{
    World world = hello();
    world.profile.security.capabilities = {"CAP_SYS_ADMIN"};
    const Request request{world.profile, world.where};
    const auto policy = policy::EffectivePolicy::meet({});
    const auto denials = std::get<std::vector<Denial>>(world.resolve());
    const audit::Denied audit = to_audit(request, policy, denials);
    ASSERT_EQ(audit.denials.size(), 1U);
    EXPECT_EQ(audit.denials[0].denial_class, "UNSUPPORTED_REQUIREMENT");
    EXPECT_EQ(audit.denials[0].key, denials[0].key);
    EXPECT_EQ(audit.policy_digest, policy.digest());
}

}  // namespace
}  // namespace sandbox::resolve
