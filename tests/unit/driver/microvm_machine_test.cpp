// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "driver/microvm/machine.hpp"
#include "fixture.hpp"
#include "wire/wire.hpp"

namespace sandbox::driver::test {
namespace {

using Kind = wire::MachineStepKind;

plan::PlanContent machine_content()
{
    plan::PlanContent content = full_content(profile::Driver::microvm);
    content.resources = {};
    content.resources.version = plan::CgroupVersion::v2;
    content.resources.workload = {{"memory", "memory.max", "67108864"}};
    content.resources.control = {{"pids", "pids.max", "16"}};
    content.security.masked = {GuestPath("/proc/keys")};
    content.security.read_only = {GuestPath("/proc/sys")};
    plan::MicrovmPlan microvm;
    microvm.guest_arch = "x86_64";
    microvm.memory = Bytes{256ULL << 20};
    content.microvm = std::move(microvm);
    return content;
}

microvm::MicrovmArtifact artifact_with(std::vector<TreeStep> steps)
{
    microvm::MicrovmArtifact artifact;
    artifact.steps = std::move(steps);
    microvm::ShareServer server;
    server.tag = "rw";
    server.access = Access::read_write;
    artifact.shares = {server};
    return artifact;
}

std::vector<TreeStep> one_of_each()
{
    BindMount bind{HostPath("/shares/rw/0"), "work", Access::read_write, {}, Ground::operators};
    TmpfsMount tmpfs{"tmp", 4096, 01777, 1, 2, Access::read_write, Ground::ours, Swap::never};
    return {RootTmpfs{0, 1U << 20},
            Overlay{"usr", HostPath("/shares/rw/1"), {}, 8192},
            MakeDirectory{"etc", 0755, 0},
            MakeSymlink{"bin", "usr/bin"},
            MakeFile{"etc/hosts", "127.0.0.1 localhost\n", 0644, 0},
            std::move(bind),
            std::move(tmpfs),
            MaskPath{"work/a/secret", {"work/a"}, Ground::operators, {}},
            SealRoot{}};
}

}  // namespace

TEST(MicrovmMachine, SaysEachStepOfTheTreeInTheWordsOfTheProtocol)
{
    const auto machine = microvm::machine_of(sealed(machine_content()),
                                             artifact_with(one_of_each()));
    ASSERT_TRUE(machine) << machine.error().message();
    std::vector<Kind> kinds;
    for (const auto& step : machine->steps) kinds.push_back(step.kind);
    EXPECT_EQ(kinds, (std::vector{Kind::root_tmpfs, Kind::overlay, Kind::directory, Kind::symlink,
                                  Kind::file, Kind::bind, Kind::tmpfs, Kind::pin, Kind::mask,
                                  Kind::seal_root}));
    EXPECT_EQ(machine->steps[1].source, "/shares/rw/1");
    EXPECT_EQ(machine->steps[5].source, "/shares/rw/0");
    EXPECT_EQ(machine->steps[5].access, wire::MachineAccess::read_write);
    EXPECT_EQ(machine->steps[5].ground, wire::MachineGround::operators);
    EXPECT_EQ(machine->steps[6].gid, 2U);
    EXPECT_EQ(machine->steps[7].target, "work/a");
    EXPECT_EQ(machine->steps[8].target, "work/a/secret");
    EXPECT_EQ(machine->shares, (std::vector<wire::MachineShare>{{"rw", false}}));
}

TEST(MicrovmMachine, HasTheLimitsAndMasksOfThePlan)
{
    const auto machine = microvm::machine_of(sealed(machine_content()),
                                             artifact_with(one_of_each()));
    ASSERT_TRUE(machine) << machine.error().message();
    EXPECT_EQ(machine->workload, (std::vector<wire::MachineLimit>{{"memory.max", "67108864"}}));
    EXPECT_EQ(machine->control, (std::vector<wire::MachineLimit>{{"pids.max", "16"}}));
    EXPECT_EQ(machine->masked, std::vector<std::string>{"/proc/keys"});
    EXPECT_EQ(machine->read_only, std::vector<std::string>{"/proc/sys"});
}

TEST(MicrovmMachine, RefusesWhatAGuestDoesNotExpress)
{
    auto content = machine_content();
    content.resources.version = plan::CgroupVersion::v1;
    EXPECT_FALSE(microvm::machine_of(sealed(content), artifact_with(one_of_each())));

    BindMount mapped{HostPath("/shares/rw/0"), "work", Access::read_only, {}, Ground::ours};
    mapped.map.uids = {{0, 100000, 1}};
    EXPECT_FALSE(microvm::machine_of(sealed(machine_content()),
                                     artifact_with({RootTmpfs{0, 4096}, mapped})));

    // A source outside the shares is not encoded, so it never reaches a guest.
    const BindMount outside{HostPath("/etc"), "work", Access::read_only, {}, Ground::ours};
    EXPECT_FALSE(microvm::machine_of(sealed(machine_content()),
                                     artifact_with({RootTmpfs{0, 4096}, outside})));
}

}  // namespace sandbox::driver::test
