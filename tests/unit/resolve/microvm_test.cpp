// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "resolve/microvm.hpp"
#include "resolve/microvm_shares.hpp"
#include "resolve/microvm_sizes.hpp"
#include "world.hpp"

namespace sandbox::resolve {
namespace {

using plan::Ownership;
using test::bind;
using test::control;
using test::digest_of;
using test::first_of;
using test::guest;
using test::planned;
using test::verdict;
using test::World;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kGiB = 1ULL << 30;

TEST(MicrovmSizes, FollowTheCurves)
{
    struct Row {
        HostSize host;
        GuestSize size;
    };
    const Row rows[] = {{{128, 511 * kGiB}, {12, Bytes{12 * kGiB}}},
                        {{16, 32 * kGiB}, {6, Bytes{4 * kGiB}}},
                        {{8, 8 * kGiB}, {2, Bytes{kGiB}}},
                        {{24, 8 * kGiB}, {2, Bytes{kGiB}}},
                        {{0, 0}, {1, Bytes{512 * kMiB}}},
                        {{12, 64 * kGiB}, {4, Bytes{4 * kGiB}}},
                        {{7, 64 * kGiB}, {1, Bytes{kGiB}}},
                        {{23, 64 * kGiB}, {6, Bytes{6 * kGiB}}},
                        {{2, 24 * kGiB}, {1, Bytes{kGiB}}},
                        {{64, kGiB}, {1, Bytes{512 * kMiB}}},
        // A machine sold with 8 GiB, as its kernel counts.
                        {{8, 8 * kGiB - 250 * kMiB}, {2, Bytes{kGiB}}}};
    for (const Row& row : rows) {
        EXPECT_EQ(guest_size(row.host, {}), row.size)
            << row.host.cpus << " cores, " << row.host.memory / kMiB << " MiB";
    }
}

TEST(MicrovmSizes, TakeANamedNumberAsItIs)
{
    const HostSize host{8, 8 * kGiB};
    EXPECT_EQ(guest_size(host, {4U, std::nullopt}), (GuestSize{4, Bytes{kGiB}}));
    EXPECT_EQ(guest_size(host, {std::nullopt, Bytes{3 * kGiB}}), (GuestSize{2, Bytes{3 * kGiB}}));
    EXPECT_EQ(guest_size(host, {1U, Bytes{kGiB + 5}}), (GuestSize{1, Bytes{kGiB}}));
}

TEST(MicrovmSizes, TheOverheadGrowsWithServersMemoryAndEmulation)
{
    using plan::Accelerator;
    const Bytes small{512 * kMiB};
    const Bytes plain = vmm_overhead(Accelerator::kvm, small, 0);
    EXPECT_EQ(plain.count % kMiB, 0U);
    EXPECT_GT(vmm_overhead(Accelerator::kvm, small, 1).count, plain.count);
    EXPECT_GT(vmm_overhead(Accelerator::kvm, Bytes{16 * kGiB}, 0).count, plain.count);
    EXPECT_EQ(vmm_overhead(Accelerator::tcg, small, 0).count,
              plain.count + plan::kTranslationCache.count);
}

std::vector<std::string> folded(const std::vector<ShareRequest>& requests, const ShareRules& rules)
{
    const Shares shares = fold_shares(requests, rules, Ownership::idmap_user);
    std::vector<std::string> out;
    for (const plan::SharePlan& share : shares.shares) {
        out.push_back((share.read_only ? "ro " : "rw ") + share.source.str());
    }
    for (const RefusedShare& refused : shares.refused) {
        out.push_back(std::string(to_string(refused.refusal)) + " " +
                      std::to_string(refused.place));
    }
    return out;
}

TEST(MicrovmShares, OneOfTheSameWritabilityHoldsWhatLiesInIt)
{
    EXPECT_THAT(folded({{"/srv/a/b", true, 0}, {"/srv/a", true, 1}, {"/srv/ab", true, 2}}, {}),
                ElementsAre("ro /srv/a", "ro /srv/ab"));
}

TEST(MicrovmShares, WritabilityIsNeverMerged)
{
    EXPECT_THAT(
        folded({{"/srv", true, 0}, {"/srv/cache", false, 1}, {"/srv/cache/x", true, 2}}, {}),
        ElementsAre("ro /srv", "rw /srv/cache"));
    EXPECT_THAT(folded({{"/srv", false, 0}, {"/srv/x", true, 1}}, {}),
                ElementsAre("ro /srv/x", "rw /srv"));
}

TEST(MicrovmShares, AStoreOfThousandsIsOne)
{
    std::vector<ShareRequest> requests;
    for (std::size_t i = 0; i < 3000; ++i) {
        requests.push_back({"/nix/store/" + std::to_string(i), true, i});
    }
    EXPECT_THAT(folded(requests, {{"/nix/store"}, {}}), ElementsAre("ro /nix/store"));
}

TEST(MicrovmShares, ThirtyTwoAreTakenAndOneMoreIsRefused)
{
    std::vector<ShareRequest> requests;
    for (std::size_t i = 0; i < kMostShares; ++i) {
        requests.push_back({"/srv/" + std::to_string(i), i % 2 == 0, i});
    }
    EXPECT_EQ(folded(requests, {}).size(), kMostShares);
    requests.push_back({"/srv/more", true, kMostShares});
    EXPECT_THAT(folded(requests, {}), Contains("too-many-shares 32"));
}

TEST(MicrovmShares, RefuseAWriteIntoAStoreAndAPathOutsideTheRoots)
{
    EXPECT_THAT(folded({{"/store/x", false, 3}}, {{"/store"}, {}}),
                ElementsAre("writable-mount-in-read-only-share 3"));
    const ShareRules rules{{"/store"}, {"/srv"}};
    EXPECT_THAT(folded({{"/home/x", true, 0}, {"/srv/y", false, 1}, {"/store/z", true, 2}}, rules),
                ElementsAre("ro /store", "rw /srv/y", "path-in-no-share 0"));
}

TEST(MicrovmLandlock, FollowsTheKernelsRelease)
{
    EXPECT_EQ(landlock_of_release("6.12.117+deb12-cloud-amd64"), 6U);
    EXPECT_EQ(landlock_of_release("6.1.0-57-cloud-amd64"), 2U);
    EXPECT_EQ(landlock_of_release("5.10.0"), 0U);
    EXPECT_EQ(landlock_of_release("7.0.1"), 7U);
    for (const char* text : {"", "6", "x.y", "6.", "unversioned"}) {
        EXPECT_EQ(landlock_of_release(text), 0U) << text;
    }
}

TEST(ResolveMicrovm, GivesHardwareAClassOfItsOwn)
{
    const auto plan = planned(guest("kvm"));
    EXPECT_EQ(plan->driver, profile::Driver::microvm);
    EXPECT_EQ(plan->isolation_class, plan::IsolationClass::hardware_vm);
    EXPECT_TRUE(plan->warnings.empty());
    EXPECT_EQ(plan->artifacts.at("guest.kernel"), digest_of('8'));
    EXPECT_TRUE(plan->facts.contains("kvm.guest"));
}

TEST(ResolveMicrovm, SaysLoudlyThatEmulationIsNoBoundary)
{
    const auto plan = planned(guest("tcg"));
    EXPECT_EQ(plan->isolation_class, plan::IsolationClass::emulated_vm);
    EXPECT_THAT(plan->warnings, ElementsAre(HasSubstr("no boundary is promised")));
    EXPECT_THAT(plan::render_table(plan), HasSubstr("EMULATED"));
}

TEST(ResolveMicrovm, IsDeniedWithTheMendWhereNothingExecutesGuests)
{
    World world = guest("kvm");
    world.lose("kvm.guest");
    world.lose("vmm.accelerator");
    world.where.erase("isolation");
    const Resolution resolution = world.resolve();
    ASSERT_THAT(verdict(resolution),
                ElementsAre("BACKEND_UNAVAILABLE kvm-guest-unavailable isolation"));
    EXPECT_THAT(first_of(resolution).requirement, HasSubstr("the default"));
    EXPECT_THAT(first_of(resolution).mend, HasSubstr("accept_emulated = true"));
}

TEST(ResolveMicrovm, IsDeniedWhereTheDriverIsNotUsable)
{
    World world = guest("tcg");
    world.lose("driver.microvm");
    EXPECT_THAT(verdict(world), ElementsAre("BACKEND_UNAVAILABLE microvm-not-available isolation"));
}

TEST(ResolveMicrovm, AnOrganisationCanForbidEmulationByFileAndLine)
{
    World world = guest("tcg");
    world.bundle("isolation_classes").isolation_classes = std::set<std::string>{"hardware-vm"};
    const Resolution resolution = world.resolve();
    ASSERT_THAT(verdict(resolution),
                ElementsAre("POLICY_DENIED isolation-class-not-permitted isolation"));
    EXPECT_EQ(first_of(resolution).source.file, "org.d/10-org.toml");
    EXPECT_EQ(first_of(resolution).source.line, 4U);
    World hardware = guest("kvm");
    hardware.bundle("isolation_classes").isolation_classes = std::set<std::string>{"hardware-vm"};
    EXPECT_THAT(verdict(hardware), ElementsAre("planned"));
}

TEST(ResolveMicrovm, EachMissingFileIsNamed)
{
    const std::pair<const char*, const char*> rows[] = {
        {"vmm.digest", "BACKEND_UNAVAILABLE vmm-missing isolation"},
        {"vmm.virtiofsd_digest", "BACKEND_UNAVAILABLE virtiofsd-missing isolation"},
        {"vmm.guest_kernel", "BACKEND_UNAVAILABLE guest-kernel-missing isolation"},
        {"vmm.guest_initrd", "BACKEND_UNAVAILABLE guest-initrd-missing isolation"},
        {"vmm.pinned", "BACKEND_ARTIFACT_MISMATCH artifact-pin-mismatch isolation"}};
    for (const auto& [fact, wanted] : rows) {
        World world = guest("kvm");
        world.lose(fact);
        EXPECT_THAT(verdict(world), ElementsAre(wanted)) << fact;
    }
}

TEST(ResolveMicrovm, RefusesWhatAGuestCannotBeGivenEachByItsReason)
{
    World world = guest("tcg");
    world.facts["config.microvm_stores"].value = "/nix/store";
    world.facts["config.microvm_shares"].value = "/srv:/home/build";
    world.profile.mounts = {bind("/opt/x", "/x"), bind("/nix/store/a", "/a"),
                            bind("/dev/kvm", "/k"), bind("/sys/fs/cgroup/mine", "/c")};
    world.profile.mounts[1].read_only = false;
    world.profile.network.mode = profile::NetworkMode::host;
    const auto denials = verdict(world);
    for (const char* wanted :
         {"UNSUPPORTED_REQUIREMENT path-in-no-share mount[0].source",
          "UNSUPPORTED_REQUIREMENT writable-mount-in-read-only-share mount[1].read_only",
          "UNSUPPORTED_REQUIREMENT device-node-in-guest mount[2].source",
          "UNSUPPORTED_REQUIREMENT cgroup-in-guest mount[3].source",
          "UNSUPPORTED_REQUIREMENT host-network-in-guest network.mode"}) {
        EXPECT_THAT(denials, Contains(wanted));
    }
}

TEST(ResolveMicrovm, RefusesMoreThanThirtyTwoShares)
{
    World world = guest("tcg");
    // The host's /usr is the 33rd.
    for (std::size_t i = 0; i < kMostShares; ++i) {
        world.profile.mounts.push_back(
            bind("/srv/" + std::to_string(i), "/m/" + std::to_string(i)));
    }
    EXPECT_THAT(verdict(world), ElementsAre("UNSUPPORTED_REQUIREMENT too-many-shares mount"));
    world.profile.mounts.pop_back();
    EXPECT_EQ(planned(world)->microvm->shares.size(), kMostShares);
}

TEST(ResolveMicrovm, SharesTheRootReadOnlyAndKeepsItsOwnersApart)
{
    World world = guest("tcg");
    world.profile.rootfs.source = profile::DirRootfs{HostPath("/srv/root")};
    world.profile.mounts = {bind("/srv", "/data"), bind("/srv/work", "/work")};
    world.profile.mounts[1].read_only = false;
    const auto plan = planned(world);
    EXPECT_THAT(plan->microvm->shares,
                ElementsAre(plan::SharePlan{HostPath("/srv"), true, Ownership::idmap_user},
                            plan::SharePlan{HostPath("/srv/root"), true, Ownership::idmap_all},
                            plan::SharePlan{HostPath("/srv/work"), false, Ownership::idmap_user}));
    EXPECT_EQ(plan->rootfs.strategy, plan::RootfsStrategy::overlay_tmpfs);
    EXPECT_EQ(control(plan, "share:/srv/work"), "virtiofsd over a bind = rw,nosuid,nodev");
}

TEST(ResolveMicrovm, NeedsNoOverlayOfTheHost)
{
    World world = guest("tcg");
    world.lose("mount.overlayfs");
    world.profile.rootfs.read_only = false;
    EXPECT_THAT(verdict(world), ElementsAre("planned"));
}

TEST(ResolveMicrovm, LimitsTheVmmOutsideAndTheWorkloadInside)
{
    World world = guest("tcg");
    world.profile.resources.memory = Bytes{200 * kMiB};
    world.profile.resources.cpus = MilliCpus{1500};
    world.profile.resources.pids = 64;
    world.profile.microvm.memory = Bytes{512 * kMiB};
    const auto plan = planned(world);
    const plan::MicrovmPlan& microvm = *plan->microvm;
    EXPECT_EQ(microvm.cpus, 2U);
    EXPECT_EQ(microvm.memory.count, 512 * kMiB);
    const std::string host = std::to_string(microvm.memory.count + microvm.overhead.count);
    EXPECT_EQ(control(plan, "vmm.limit.memory"), "cgroup v1 memory.limit_in_bytes = " + host);
    EXPECT_EQ(control(plan, "vmm.limit.cpu"), "cgroup v1 cpu.cfs_quota_us = 150000");
    EXPECT_EQ(control(plan, "guest.limit.pids"), "cgroup v2 pids.max = 64");
    EXPECT_EQ(control(plan, "guest.limit.memory"),
              "cgroup v2 memory.max = " + std::to_string(200 * kMiB));
    EXPECT_EQ(control(plan, "guest.limit.cpu"), "(no such control)");
}

TEST(ResolveMicrovm, MarksEveryControlAsTheHostsOrTheGuests)
{
    World world = guest("kvm");
    world.profile.process.timeout = Millis{1000};
    const auto plan = planned(world);
    for (const plan::Control& one : plan->controls) {
        const std::string_view name = one.name;
        const bool host = name.starts_with("vmm.") || name.starts_with("share:") ||
                          name.starts_with("virtiofsd.") || name == "process.timeout";
        EXPECT_TRUE(host || name.starts_with("guest.")) << name;
    }
    EXPECT_THAT(control(plan, "guest.landlock"), HasSubstr("Landlock ruleset = abi 6"));
}

TEST(ResolveMicrovm, TheProfilesSizeComesBeforeTheOperatorsAndTheCurve)
{
    World world = guest("tcg");
    EXPECT_EQ(planned(world)->microvm->memory.count, kGiB);
    world.facts["config.microvm_cpus"].value = "3";
    world.facts["config.microvm_memory"].value = std::to_string(700 * kMiB);
    EXPECT_EQ(planned(world)->microvm->cpus, 3U);
    EXPECT_EQ(planned(world)->microvm->memory.count, 700 * kMiB);
    world.profile.microvm = {4U, Bytes{300 * kMiB}};
    EXPECT_EQ(planned(world)->microvm->cpus, 4U);
    EXPECT_EQ(planned(world)->microvm->memory.count, 300 * kMiB);
}

TEST(ResolveMicrovm, AWorkloadsLimitAsksForAMachineThatHoldsIt)
{
    World world = guest("tcg");
    world.profile.resources.memory = Bytes{2 * kGiB};
    EXPECT_EQ(planned(world)->microvm->memory.count, 2 * kGiB + kGuestReserve);
    world.profile.microvm.memory = Bytes{2 * kGiB};
    EXPECT_THAT(verdict(world),
                ElementsAre("UNSUPPORTED_REQUIREMENT memory-above-guest resources.memory"));
    world.profile.microvm.memory = Bytes{100 * kMiB};
    EXPECT_THAT(verdict(world),
                ElementsAre("UNSUPPORTED_REQUIREMENT guest-memory-too-small microvm.memory"));
}

TEST(ResolveMicrovm, PolicyMeasuresTheWholeMachine)
{
    World world = guest("tcg");
    world.profile.resources.memory = Bytes{64 * kMiB};
    world.bundle("max.memory").max.memory = Bytes{512 * kMiB};
    EXPECT_THAT(verdict(world), ElementsAre("POLICY_DENIED memory-above-maximum microvm.memory"));
    world.profile.microvm.memory = Bytes{512 * kMiB};
    EXPECT_THAT(verdict(world), ElementsAre("planned"));
    world.profile.microvm.cpus = 4;
    world.bundle("max.cpus").max.cpus = MilliCpus{2000};
    EXPECT_THAT(verdict(world), ElementsAre("POLICY_DENIED cpus-above-maximum microvm.cpus"));
}

TEST(ResolveMicrovm, DigestsCountAsPinnedWhereTheOperatorPinnedAllFour)
{
    World world = guest("kvm");
    world.bundle("require.pinned_digests").require.pinned_digests = true;
    EXPECT_THAT(verdict(world), ElementsAre("planned"));
    world.facts["vmm.pinned"].value = "default";
    EXPECT_THAT(verdict(world), ElementsAre("POLICY_DENIED digests-not-pinned driver"));
}

TEST(ResolveMicrovm, APlanFileCarriesTheMachine)
{
    const auto plan = planned(guest("tcg"));
    const auto file = plan::encode_file(plan);
    ASSERT_TRUE(file);
    const auto read = plan::decode_file(*file);
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ((*read)->microvm, plan->microvm);
    EXPECT_EQ(read->digest(), plan.digest());
    World other = guest("tcg");
    other.facts["host.cpus"].value = "64";
    EXPECT_THAT(planned(other).digest().str(), Not(plan.digest().str()));
}

}  // namespace
}  // namespace sandbox::resolve
