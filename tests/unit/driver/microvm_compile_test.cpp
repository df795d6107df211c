// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "canon/json.hpp"
#include "driver/microvm/compile.hpp"
#include "driver/microvm/shares.hpp"
#include "fixture.hpp"
#include "wire/wire.hpp"

namespace sandbox::driver::test {
namespace {

using microvm::MicrovmArtifact;
using microvm::Role;

plan::PlanContent guest_content(plan::Accelerator accelerator)
{
    plan::PlanContent content = full_content(profile::Driver::microvm);
    content.isolation_class = accelerator == plan::Accelerator::kvm
                                  ? plan::IsolationClass::hardware_vm
                                  : plan::IsolationClass::emulated_vm;
    plan::MicrovmPlan microvm;
    microvm.accelerator = accelerator;
    microvm.guest_arch = "x86_64";
    microvm.guest_release = "6.12.117+deb12-cloud-amd64";
    microvm.cpus = 2;
    microvm.memory = Bytes{512ULL << 20};
    microvm.overhead = Bytes{256ULL << 20};
    microvm.shares = {{HostPath("/srv"), true, plan::Ownership::overflow},
                      {HostPath("/usr"), true, content.rootfs.ownership},
                      {HostPath("/srv/data"), false, plan::Ownership::idmap_user}};
    microvm.host.version = plan::CgroupVersion::v1;
    microvm.host.controllers = {"memory", "pids"};
    microvm.host.workload = {{"memory", "memory.limit_in_bytes", "805306368"}};
    content.microvm = std::move(microvm);
    return content;
}

MicrovmArtifact compiled_guest(const plan::PlanContent& content)
{
    auto artifact = microvm::compile(sealed(content), sample_binding());
    if (!artifact) ADD_FAILURE() << artifact.error().message();
    return artifact ? std::move(*artifact) : MicrovmArtifact{};
}

std::string guest_refusal(const plan::PlanContent& content)
{
    const auto artifact = microvm::compile(sealed(content), sample_binding());
    return artifact ? "" : artifact.error().message();
}

std::string readable_guest(const MicrovmArtifact& artifact)
{
    auto json = canon::parse(*microvm::render(artifact)).value();
    json["guest"]["bootstrap"] = without_filter(artifact.bootstrap);
    return json.dump(1) + "\n";
}

bool has(const std::vector<std::string>& list, std::string_view item)
{
    return std::ranges::find(list, item) != list.end();
}

}  // namespace

TEST(MicrovmCompile, EmulatedGuestIsExactlyThis)
{
    expect_golden("microvm-tcg",
                  readable_guest(compiled_guest(guest_content(plan::Accelerator::tcg))));
}

TEST(MicrovmCompile, HardwareGuestIsExactlyThis)
{
    expect_golden("microvm-kvm",
                  readable_guest(compiled_guest(guest_content(plan::Accelerator::kvm))));
}

TEST(MicrovmCompile, GivesTheSameBytesTwice)
{
    const auto content = guest_content(plan::Accelerator::kvm);
    EXPECT_EQ(compiled_guest(content), compiled_guest(content));
    EXPECT_EQ(compiled_guest(content).digest, compiled_guest(content).digest);
}

TEST(MicrovmCompile, HasASharedMemoryOnlyWhereThereAreShares)
{
    auto content = guest_content(plan::Accelerator::kvm);
    EXPECT_TRUE(has(compiled_guest(content).arguments,
                    "memory-backend-memfd,id=memory,size=512M,share=on"));
    // A root that needs no share does not exist yet; the arguments alone are asked.
    content.mounts.clear();
    content.microvm->shares = {content.microvm->shares[1]};
    const auto artifact = compiled_guest(content);
    EXPECT_EQ(artifact.shares.size(), 1U);
    EXPECT_EQ(artifact.shares.front().tag, "ro");
}

TEST(MicrovmCompile, EveryDescriptorHasOneMeaningAndAppearsInTheArguments)
{
    const auto artifact = compiled_guest(guest_content(plan::Accelerator::tcg));
    std::string all;
    for (const std::string& one : artifact.arguments) all += one + "\n";
    std::set<int> numbers;
    for (const auto& descriptor : artifact.descriptors) {
        EXPECT_TRUE(numbers.insert(descriptor.number).second) << descriptor.number;
        if (descriptor.number < 3) continue;
        EXPECT_NE(all.find("fd=" + std::to_string(descriptor.number)), std::string::npos)
            << to_string(descriptor.role);
    }
    EXPECT_EQ(numbers.size(), 8U);
    for (const auto& server : artifact.shares) {
        EXPECT_EQ(server.argv[1], "--fd=3");
        EXPECT_EQ(server.descriptors.back().role, Role::serve);
    }
}

TEST(MicrovmCompile, NothingOfAProfileBecomesAnOption)
{
    const auto plain = compiled_guest(guest_content(plan::Accelerator::tcg));
    auto content = guest_content(plan::Accelerator::tcg);
    const std::string evil = ",share=off\n-device e1000 --fd=9,path=/etc/shadow -o source=/ \x01";
    content.request.name = evil;
    content.network.hostname = "x";
    content.process.argv = {evil, "-incoming", "exec:sh"};
    content.process.env = {{"A", evil}};
    content.process.cwd = GuestPath("/" + evil);
    content.request.labels = {{evil, evil}};
    content.mounts[0].source = HostPath("/srv/data/" + evil);
    content.mounts[0].target = GuestPath("/work/" + evil);
    content.masks = {GuestPath("/work/" + evil + "/x")};
    content.microvm->shares[0].source = HostPath("/srv");
    content.microvm->shares[2].source = HostPath("/srv/data/" + evil);
    content.microvm->guest_release = evil;
    const auto artifact = compiled_guest(content);
    EXPECT_EQ(artifact.arguments, plain.arguments);
    EXPECT_EQ(artifact.kernel_parameters, plain.kernel_parameters);
    ASSERT_EQ(artifact.shares.size(), plain.shares.size());
    for (std::size_t i = 0; i < artifact.shares.size(); ++i) {
        EXPECT_EQ(artifact.shares[i].argv, plain.shares[i].argv);
    }
    EXPECT_EQ(*microvm::vmm_arguments(artifact, {2'600'000}),
              *microvm::vmm_arguments(plain, {2'600'000}));
}

TEST(MicrovmCompile, RefusesAnArchitectureWithoutTheMachineAndOtherDrivers)
{
    auto content = guest_content(plan::Accelerator::kvm);
    content.microvm->guest_arch = "aarch64,accel=tcg";
    EXPECT_NE(guest_refusal(content).find("no microvm machine"), std::string::npos);
    EXPECT_NE(guest_refusal(full_content(profile::Driver::oci)).find("not for microvm"),
              std::string::npos);
    content = guest_content(plan::Accelerator::kvm);
    content.network.mode = profile::NetworkMode::host;
    EXPECT_NE(guest_refusal(content).find("no network device"), std::string::npos);
}

TEST(MicrovmCompile, RefusesASourceThatNoShareHolds)
{
    auto content = guest_content(plan::Accelerator::kvm);
    content.microvm->shares.pop_back();
    EXPECT_NE(guest_refusal(content).find("no writable share of the plan holds /srv/data"),
              std::string::npos);
}

TEST(MicrovmCompile, NeverFallsBackFromHardwareToEmulation)
{
    const auto artifact = compiled_guest(guest_content(plan::Accelerator::kvm));
    EXPECT_EQ(std::ranges::count(artifact.arguments, "-accel"), 1);
    EXPECT_TRUE(has(artifact.arguments, "kvm"));
    for (const std::string& one : artifact.arguments) {
        EXPECT_EQ(one.find("tcg"), std::string::npos) << one;
    }
    EXPECT_EQ(artifact.files.back().path, "/dev/kvm");
    EXPECT_EQ(compiled_guest(guest_content(plan::Accelerator::tcg)).files.size(), 2U);
}

TEST(MicrovmCompile, WaitsLongerForAnEmulatedBoot)
{
    EXPECT_EQ(compiled_guest(guest_content(plan::Accelerator::kvm)).boot_deadline, Millis(15'000));
    EXPECT_EQ(compiled_guest(guest_content(plan::Accelerator::tcg)).boot_deadline, Millis(90'000));
}

TEST(MicrovmCompile, TellsAnEmulatedKernelTheTimeStampCounter)
{
    const auto emulated = compiled_guest(guest_content(plan::Accelerator::tcg));
    EXPECT_FALSE(microvm::vmm_arguments(emulated, {}));
    const auto arguments = microvm::vmm_arguments(emulated, {2'593'906});
    ASSERT_TRUE(arguments);
    EXPECT_EQ((*arguments)[arguments->size() - 2], "-append");
    EXPECT_NE(arguments->back().find(" tsc_early_khz=2593906"), std::string::npos);
    const auto hardware = compiled_guest(guest_content(plan::Accelerator::kvm));
    EXPECT_EQ(microvm::vmm_arguments(hardware, {2'593'906})->back().find("tsc"), std::string::npos);
}

TEST(MicrovmCompile, TheGuestsTreeKnowsSharesAndNoPlaceOfTheHost)
{
    const auto artifact = compiled_guest(guest_content(plan::Accelerator::tcg));
    std::set<std::string> sources;
    for (const auto& step : artifact.steps) {
        if (const auto* bound = std::get_if<BindMount>(&step)) {
            sources.insert(bound->source.str());
            EXPECT_EQ(bound->map, MountIdMap{});
        }
        if (const auto* made = std::get_if<MakeDirectory>(&step)) {
            EXPECT_EQ(made->owner, 0U);
        }
    }
    EXPECT_EQ(sources,
              (std::set<std::string>{"/shares/ro/0/read", "/shares/ro/1", "/shares/rw/2"}));
    const auto record = wire::decode_bootstrap(std::as_bytes(std::span(artifact.bootstrap)));
    ASSERT_TRUE(record);
    EXPECT_EQ(record->mode, wire::BootMode::microvm);
    EXPECT_EQ(record->channel, wire::BootChannel::virtio_serial);
}

TEST(MicrovmCompile, ServedTreesHoldSharesOfOneWritabilityUnderTheirNumbers)
{
    const auto artifact = compiled_guest(guest_content(plan::Accelerator::tcg));
    ASSERT_EQ(artifact.shares.size(), 2U);
    std::vector<std::string> seen;
    for (const auto& server : artifact.shares) {
        for (const auto& step : server.steps) {
            const auto* bound = std::get_if<BindMount>(&step);
            if (bound == nullptr) continue;
            EXPECT_EQ(bound->access, server.access);
            seen.push_back(server.tag + " " + bound->target + " " + bound->source.str());
        }
        EXPECT_TRUE(std::holds_alternative<SealRoot>(server.steps.back()));
    }
    EXPECT_EQ(seen, (std::vector<std::string>{"ro 0 /srv", "ro 1 /usr", "rw 2 /srv/data"}));
}

TEST(MicrovmShares, AreFoundByWholeComponentsWritabilityAndOwners)
{
    const std::vector<plan::SharePlan> shares{
        {HostPath("/srv"), true, plan::Ownership::idmap_user},
        {HostPath("/srv"), false, plan::Ownership::idmap_user}};
    const auto own = plan::Ownership::idmap_user;
    EXPECT_EQ(microvm::find_share(shares, "/srv/a/b", true, own), (microvm::SharePlace{0, "a/b"}));
    EXPECT_EQ(microvm::find_share(shares, "/srv", false, own), (microvm::SharePlace{1, ""}));
    EXPECT_FALSE(microvm::find_share(shares, "/srvx", true, own));
    EXPECT_FALSE(microvm::find_share(shares, "/srv/a", true, plan::Ownership::overflow));
    EXPECT_EQ(microvm::inside(shares, {1, "a/b"}).str(), "/shares/rw/1/a/b");
}

}  // namespace sandbox::driver::test
