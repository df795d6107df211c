// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "world.hpp"

namespace sandbox::resolve::test {
namespace {

using testing::ElementsAre;

profile::Secret in_file(const std::string& name, const std::string& file)
{
    return {name, std::nullopt, GuestPath(file)};
}

TEST(ResolveSecrets, NamesTheirPlaceAndGivesFilesATmpfsOfTheirOwn)
{
    World world = hello();
    world.profile.secrets = {in_file("A", "/run/secrets/a"),
                             in_file("B", "/run/secrets/b"),
                             {"TOKEN", "API_TOKEN", std::nullopt}};
    const auto plan = planned(world);
    EXPECT_EQ(control(plan, "secret:A"), "file on a private tmpfs = /run/secrets/a");
    EXPECT_EQ(control(plan, "secret:TOKEN"), "environment of the main process = API_TOKEN");
    std::vector<std::string> folders;
    for (const auto& mount : plan->mounts) {
        if (mount.target.str() != "/run/secrets") continue;
        folders.push_back(mount.target.str());
        EXPECT_EQ(mount.type, profile::MountType::tmpfs);
        EXPECT_EQ(mount.mode, 0700U);
        EXPECT_FALSE(mount.read_only);
    }
    EXPECT_EQ(folders.size(), 1U);
    EXPECT_FALSE(plan->process.env.contains("API_TOKEN"));
}

TEST(ResolveSecrets, AFileOfAnOrdinaryUserNeedsAHostThatDoesNotSwap)
{
    World world = hello();
    world.profile.driver = profile::Driver::native;
    world.facts["host.privilege"].value = "user";
    world.facts["helper.newuidmap"] = {facts::FactStatus::ok, "/usr/bin/newuidmap", ""};
    world.facts["ids.subordinate"] = {facts::FactStatus::ok, "100000:65536", ""};
    world.profile.secrets = {in_file("A", "/run/secrets/a")};
    for (const char* swap : {"on", "unknown"}) {
        world.facts["host.swap"] = {facts::FactStatus::note, swap, "/proc/swaps"};
        EXPECT_THAT(verdict(world), ElementsAre("REQUIRED_CONTROL_UNAVAILABLE "
                                                "secret-could-be-swapped secrets.A"));
    }
    world.facts["host.swap"].value = "off";
    EXPECT_THAT(verdict(world), ElementsAre("planned"));
    // Root's tmpfs is kept from swap by itself; a variable is in no file.
    world.facts["host.swap"].value = "on";
    world.facts["host.privilege"].value = "root";
    EXPECT_FALSE(planned(world)->facts.contains("host.swap"));
    world.facts["host.privilege"].value = "user";
    world.profile.secrets = {{"A", "TOKEN", std::nullopt}};
    EXPECT_THAT(verdict(world), ElementsAre("planned"));
}

TEST(ResolveSecrets, AFileStandsInAFolderBelowRun)
{
    for (const char* file : {"/work/a", "/run/a", "/runs/x/a", "/a"}) {
        World world = hello();
        world.profile.secrets = {in_file("A", file)};
        EXPECT_THAT(verdict(world), ElementsAre("INVALID_PROFILE secret-place secrets.A")) << file;
    }
}

TEST(ResolveSecrets, TheirFolderMeetsNoOtherMount)
{
    for (const char* target : {"/run", "/run/secrets", "/run/secrets/deep"}) {
        World world = hello();
        world.profile.secrets = {in_file("A", "/run/secrets/a")};
        profile::Mount mount;
        mount.type = profile::MountType::tmpfs;
        mount.target = GuestPath(target);
        world.profile.mounts = {mount};
        EXPECT_THAT(verdict(world), ElementsAre("INVALID_PROFILE secret-folder-taken secrets.A"))
            << target;
        world.profile.mounts[0].target = GuestPath("/run/secrets2");
        EXPECT_NE(control(planned(world), "secret:A"), "(no such control)");
    }
}

TEST(ResolveSecrets, AVariableNeedsAProcessAFileDoesNot)
{
    World world = hello();
    world.profile.process.argv.clear();
    world.profile.process.idle = true;
    world.profile.secrets = {{"TOKEN", "TOKEN", std::nullopt}};
    EXPECT_THAT(verdict(world),
                ElementsAre("INVALID_PROFILE secret-without-process secrets.TOKEN"));
    world.profile.secrets = {in_file("TOKEN", "/run/secrets/t")};
    EXPECT_NE(control(planned(world), "secret:TOKEN"), "(no such control)");
}

}  // namespace
}  // namespace sandbox::resolve::test
