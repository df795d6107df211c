// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "world.hpp"

namespace sandbox::resolve {
namespace {

using plan::Ownership;
using plan::RootfsStrategy;
using test::bind;
using test::control;
using test::full;
using test::hello;
using test::planned;
using test::verdict;
using test::World;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(ResolveProcess, CompletesTheEnvironmentAndNothingOfTheCaller)
{
    const auto plan = planned(full());
    EXPECT_EQ(plan->process.env.size(), 3U);
    EXPECT_EQ(plan->process.env.at("LANG"), "C.UTF-8");
    EXPECT_EQ(plan->process.env.at("HOME"), "/");
    EXPECT_EQ(plan->process.env.at("PATH"),
              "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
}

TEST(ResolveProcess, KeepsTheProfilesOwnPathAndHome)
{
    World world = hello();
    world.profile.process.env = {{"PATH", "/x"}, {"HOME", "/work"}};
    EXPECT_EQ(planned(world)->process.env, world.profile.process.env);
}

TEST(ResolveProcess, SetsBaselineLimitsWithinTheHostsHardLimit)
{
    World world = hello();
    EXPECT_EQ(planned(world)->process.rlimits,
              (std::map<std::string, std::uint64_t>{{"core", 0}, {"nofile", 16384}}));
    world.facts["rlimit.nofile.hard"].value = "4096";
    EXPECT_EQ(planned(world)->process.rlimits.at("nofile"), 4096U);
    EXPECT_EQ(control(planned(world), "rlimit.nofile"), "setrlimit soft and hard = 4096");
}

TEST(ResolveProcess, KeepsACoreLimitTheProfileAsksFor)
{
    World world = hello();
    world.profile.process.rlimits = {{"core", 4096}};
    EXPECT_EQ(planned(world)->process.rlimits.at("core"), 4096U);
}

TEST(ResolveProcess, RefusesAnOpenFilesLimitAboveTheHardOne)
{
    World world = hello();
    world.profile.process.rlimits = {{"nofile", 20001}};
    EXPECT_THAT(verdict(world), ElementsAre("REQUIRED_CONTROL_UNAVAILABLE rlimit-above-hard-limit "
                                            "process.rlimits.nofile"));
    world.profile.process.rlimits = {{"nofile", 20000}};
    EXPECT_THAT(verdict(world), ElementsAre("planned"));
}

TEST(ResolveProcess, RefusesIdsOutsideTheMap)
{
    World world = hello();
    world.profile.process.user = {65536, 1000};
    EXPECT_THAT(verdict(world),
                ElementsAre("UNSUPPORTED_REQUIREMENT user-outside-id-map process.user"));
}

TEST(ResolveRootfs, ShowsTheHostsUsrReadOnlyWithForeignOwners)
{
    const auto plan = planned(hello());
    EXPECT_EQ(plan->rootfs.source.str(), "/usr");
    EXPECT_EQ(plan->rootfs.strategy, RootfsStrategy::host_tree);
    EXPECT_EQ(plan->rootfs.ownership, Ownership::overflow);
    EXPECT_EQ(control(plan, "rootfs"), "host-tree = ro,nosuid,nodev");
}

TEST(ResolveRootfs, PutsWritesToTheHostsTreeIntoATmpfs)
{
    World world = hello();
    world.profile.rootfs.read_only = false;
    const auto plan = planned(world);
    EXPECT_EQ(plan->rootfs.strategy, RootfsStrategy::overlay_tmpfs);
    EXPECT_EQ(plan->rootfs.ownership, Ownership::idmap_all);
    EXPECT_EQ(control(plan, "rootfs"), "overlay-tmpfs = rw,nosuid,nodev");
}

TEST(ResolveRootfs, OverlaysAFolderAndKeepsItsUsers)
{
    World world = hello();
    world.profile.rootfs.source = profile::DirRootfs{HostPath("/srv/root")};
    const auto plan = planned(world);
    EXPECT_EQ(plan->rootfs.kind, "dir");
    EXPECT_EQ(plan->rootfs.source.str(), "/srv/root");
    EXPECT_EQ(plan->rootfs.ownership, Ownership::idmap_all);
    EXPECT_FALSE(plan->rootfs.etc.contains("passwd"));
    EXPECT_TRUE(plan->rootfs.etc.contains("hosts"));
}

TEST(ResolveRootfs, RefusesAFolderWhereOverlaysOrIdMapsAreNotToBeHad)
{
    World world = hello();
    world.profile.rootfs.source = profile::DirRootfs{HostPath("/srv/root")};
    world.lose("mount.overlayfs");
    world.lose("mount.idmapped");
    EXPECT_THAT(
        verdict(world),
        ElementsAre("REQUIRED_CONTROL_UNAVAILABLE idmapped-mounts-unavailable rootfs.source",
                    "REQUIRED_CONTROL_UNAVAILABLE overlayfs-unavailable rootfs.source"));
}

TEST(ResolveRootfs, RefusesAProtectedFolderAsRoot)
{
    World world = hello();
    world.profile.rootfs.source = profile::DirRootfs{HostPath("/")};
    EXPECT_THAT(verdict(world), ElementsAre("INVALID_PROFILE protected-source rootfs.source"));
}

TEST(ResolveRootfs, GeneratesEtcForTheProfilesUser)
{
    const auto etc = planned(hello())->rootfs.etc;
    EXPECT_EQ(etc.at("hostname"), "hello\n");
    EXPECT_EQ(etc.at("resolv.conf"), "");
    EXPECT_THAT(etc.at("passwd"), HasSubstr("sandbox:x:1000:1000:sandbox:/:/bin/sh\n"));
    EXPECT_THAT(etc.at("group"), HasSubstr("sandbox:x:1000:\n"));
    EXPECT_THAT(etc.at("hosts"), HasSubstr("127.0.1.1 hello\n"));
    EXPECT_THAT(etc.at("nsswitch.conf"), HasSubstr("hosts: files\n"));
}

TEST(ResolveRootfs, LetsNoHomeForgeAPasswdField)
{
    World world = hello();
    world.profile.process.env = {{"HOME", "/x:0\nevil:x:0:0::/:"}};
    EXPECT_THAT(planned(world)->rootfs.etc.at("passwd"), Not(HasSubstr("evil")));
}

TEST(ResolveRootfs, DoesNotListRootOrNobodyTwice)
{
    for (const std::uint32_t id : {0U, 65534U}) {
        World world = hello();
        world.profile.process.user = {id, id};
        const std::string passwd = planned(world)->rootfs.etc.at("passwd");
        EXPECT_EQ(std::count(passwd.begin(), passwd.end(), '\n'), 2) << passwd;
    }
}

TEST(ResolveMounts, PutParentsBeforeChildrenAndMapOneUser)
{
    const auto plan = planned(full());
    ASSERT_EQ(plan->mounts.size(), 3U);
    EXPECT_EQ(plan->mounts[0].target.str(), "/scratch");
    EXPECT_EQ(plan->mounts[0].mode, 01777U);
    EXPECT_EQ(plan->mounts[1].target.str(), "/work");
    EXPECT_EQ(plan->mounts[2].target.str(), "/work/cache");
    EXPECT_EQ(plan->mounts[2].ownership, Ownership::idmap_user);
    EXPECT_EQ(control(plan, "mount:/work"), "idmapped bind = ro,nosuid,nodev");
    EXPECT_EQ(control(plan, "mount:/work/cache"), "idmapped bind = rw,nosuid,nodev");
    EXPECT_EQ(control(plan, "mount:/scratch"), "tmpfs = rw,nosuid,nodev");
    EXPECT_EQ(control(plan, "mask:/work/.env"), "inode of our own = covered");
}

TEST(ResolveMounts, NeedIdMapsForBinds)
{
    World world = hello();
    world.profile.mounts = {bind("/srv/data", "/work")};
    world.lose("mount.idmapped");
    EXPECT_THAT(verdict(world), ElementsAre("REQUIRED_CONTROL_UNAVAILABLE "
                                            "idmapped-mounts-unavailable mount[0].source"));
}

TEST(ResolveMounts, RefuseAWritableBindForRootAndMapNothingInAReadOnlyOne)
{
    World world = hello();
    world.profile.process.user = {0, 0};
    world.profile.mounts = {bind("/srv/data", "/work")};
    EXPECT_EQ(planned(world)->mounts[0].ownership, Ownership::overflow);
    world.profile.mounts[0].read_only = false;
    EXPECT_THAT(verdict(world),
                ElementsAre("INVALID_PROFILE writable-bind-as-root mount[0].read_only"));
}

TEST(ResolveMounts, RefuseProtectedSources)
{
    for (const char* source :
         {"/", "/proc", "/sys/fs", "/dev/kvm", "/etc", "/etc/sandbox", "/var/lib/sandbox/ledger.db",
          "/run", "/run/docker.sock", "/run/dbus/system_bus_socket", "/var/run/docker.sock"}) {
        World world = hello();
        world.profile.mounts = {bind(source, "/x")};
        EXPECT_THAT(verdict(world), ElementsAre("INVALID_PROFILE protected-source mount[0].source"))
            << source;
    }
}

TEST(ResolveNetwork, GivesANamespaceOfItsOwnByDefault)
{
    const auto plan = planned(hello());
    EXPECT_THAT(plan->security.namespaces, Contains("net"));
    EXPECT_EQ(control(plan, "network.none"), "network namespace = loopback only");
    EXPECT_TRUE(plan->warnings.empty());
}

TEST(ResolveNetwork, WarnsWhenTheHostsNetworkIsShared)
{
    World world = hello();
    world.profile.network.mode = profile::NetworkMode::host;
    world.lose("namespace.net");  // not needed then
    const auto plan = planned(world);
    EXPECT_THAT(plan->security.namespaces, Not(Contains("net")));
    ASSERT_EQ(plan->warnings.size(), 1U);
    EXPECT_THAT(plan->warnings[0], HasSubstr("shares the host's network"));
    EXPECT_EQ(control(plan, "network.none"), "(no such control)");
}

TEST(ResolveUnsupported, RefusesEachKeyThisReleaseDoesNotEnforceByItsOwnReason)
{
    using profile::NetworkMode;
    const std::map<std::string, void (*)(profile::Profile&)> cases{
        {"rootfs-image-unsupported rootfs.source",
         [](profile::Profile& p) { p.rootfs.source = profile::ImageRootfs{"alpine:3"}; }},
        {"volume-mount-unsupported mount[0].type",
         [](profile::Profile& p) {
             p.mounts = {bind("cache", "/c")};
             p.mounts[0].type = profile::MountType::volume;
         }},
        {"disk-limit-unsupported resources.disk",
         [](profile::Profile& p) { p.resources.disk = Bytes{1 << 20}; }},
        {"io-weight-unsupported resources.io_weight",
         [](profile::Profile& p) { p.resources.io_weight = 100; }},
        {"network-egress-unsupported network.mode",
         [](profile::Profile& p) { p.network.mode = NetworkMode::egress; }},
        {"microvm-size-without-microvm microvm", [](profile::Profile& p) { p.microvm.cpus = 2; }}};
    for (const auto& [denial, spoil] : cases) {
        World world = hello();
        spoil(world.profile);
        EXPECT_THAT(verdict(world), ElementsAre("UNSUPPORTED_REQUIREMENT " + denial));
    }
}

TEST(ResolveLifecycle, NamesWhatHoldsEachKey)
{
    World world = hello();
    EXPECT_EQ(control(planned(world), "lifecycle.restart"), "(no such control)");
    profile::Lifecycle& lifecycle = world.profile.lifecycle;
    lifecycle.restart = profile::RestartPolicy::on_failure;
    lifecycle.backoff = Millis{1500};
    EXPECT_EQ(control(planned(world), "lifecycle.restart"),
              "shim, a new generation = on-failure, back-off 1s500ms");
    lifecycle.max_restarts = 5;
    lifecycle.ttl = Millis{7'200'000};
    lifecycle.idle_timeout = Millis{600'000};
    lifecycle.health = profile::Health{{"/bin/true"}};
    const auto plan = planned(world);
    EXPECT_EQ(control(plan, "lifecycle.restart"),
              "shim, a new generation = on-failure, back-off 1s500ms, at most 5 in a row");
    EXPECT_EQ(control(plan, "lifecycle.ttl"), "shim timer = 2h");
    EXPECT_EQ(control(plan, "lifecycle.idle_timeout"), "shim timer = 10m");
    EXPECT_EQ(control(plan, "lifecycle.health"),
              "session in a leaf of its own = every 10s, within 2s, 3 failures in a row");
}

TEST(ResolveUnsupported, RefusesRulesAndPortsOfAnEgressNetworkToo)
{
    World world = hello();
    world.profile.network.mode = profile::NetworkMode::egress;
    world.profile.network.rules = {
        {profile::RuleAction::allow, "a.example", 443, profile::Protocol::tcp, ""}};
    world.profile.network.publish = {{"127.0.0.1", 8080, 80}};
    EXPECT_THAT(verdict(world),
                ElementsAre("UNSUPPORTED_REQUIREMENT network-rules-unsupported network.allow",
                            "UNSUPPORTED_REQUIREMENT network-egress-unsupported network.mode",
                            "UNSUPPORTED_REQUIREMENT network-publish-unsupported network.publish"));
}

TEST(ResolveMounts, CompletesTheHostsUsrWithItsAlternatives)
{
    World world = hello();
    EXPECT_TRUE(planned(world)->mounts.empty());
    world.facts["host.alternatives"] = {facts::FactStatus::ok, "/etc/alternatives", ""};
    const auto mounts = planned(world)->mounts;
    ASSERT_EQ(mounts.size(), 1U);
    EXPECT_EQ(mounts[0].target, GuestPath("/etc/alternatives"));
    EXPECT_TRUE(mounts[0].read_only);
    EXPECT_EQ(mounts[0].ownership, plan::Ownership::overflow);
}

TEST(ResolveUnsupported, KeepsAutostartAndLabelsWhichNoDriverEnforces)
{
    World world = hello();
    world.profile.lifecycle.autostart = true;
    world.profile.labels = {{"a", "b"}};
    EXPECT_EQ(planned(world)->request, world.profile);
}

}  // namespace
}  // namespace sandbox::resolve
