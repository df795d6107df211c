// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "census.hpp"
#include "probe/certified.hpp"
#include "probe/identity.hpp"
#include "probe/tasks.hpp"
#include "probe/tiny_program.hpp"

namespace sandbox::probe {
namespace {

namespace name = facts::name;
using facts::Fact;
using facts::FactStatus;
using Facts = std::map<std::string, Fact>;

TEST(ProbeVersions, ComparesPartsAsNumbers)
{
    EXPECT_LT(compare_versions("1.8.1", "1.28"), 0);
    EXPECT_GT(compare_versions("1.29.1", "1.29"), 0);
    EXPECT_EQ(compare_versions("1.8", "1.8.0"), 0);
    EXPECT_LT(compare_versions("", "1"), 0);
    EXPECT_GT(compare_versions("99999999999999999999", "1"), 0);
}

TEST(ProbeVersions, ReadsOnlyTextOfTheKnownShape)
{
    EXPECT_EQ(parse_version(Tool::crun, "crun version 1.8.1\ncommit: x\n"), "1.8.1");
    EXPECT_EQ(parse_version(Tool::qemu, "QEMU emulator version 7.2.22 (Debian 1:7.2)\n"), "7.2.22");
    EXPECT_EQ(parse_version(Tool::virtiofsd, "virtiofsd version 7.2.22 (Debian)\n"), "7.2.22");
    EXPECT_EQ(parse_version(Tool::virtiofsd, "virtiofsd 1.10.0\n"), "1.10.0");
    EXPECT_EQ(parse_version(Tool::crun, "runc version 1.1.5\n"), "");
    EXPECT_EQ(parse_version(Tool::crun, "crun version \n"), "");
    EXPECT_EQ(parse_version(Tool::crun, "crun version 1.8\x1b[31m\n"), "");
    EXPECT_EQ(parse_version(Tool::crun, ""), "");
}

TEST(ProbeAdvisories, NamesWhatIsOpenForAVersion)
{
    const auto ids = [](std::string_view version) {
        std::vector<std::string> found;
        for (const Advisory& advisory : advisories("crun", version))
            found.emplace_back(advisory.id);
        return found;
    };
    using Ids = std::vector<std::string>;
    EXPECT_EQ(ids("1.8.1"), (Ids{"CVE-2026-47766", "CVE-2026-88264", "CVE-2026-88265"}));
    EXPECT_EQ(ids("1.28"), (Ids{"CVE-2026-88264", "CVE-2026-88265"}));
    EXPECT_EQ(ids("1.29.1"), (Ids{"CVE-2026-88264", "CVE-2026-88265"}));
    EXPECT_TRUE(ids("1.30").empty());
    EXPECT_EQ(ids("").size(), 3U) << "an unknown version has them all";
    EXPECT_TRUE(advisories("bash", "5").empty());
}

TEST(ProbeAdvisories, CertifiesExactVersionsOnly)
{
    EXPECT_TRUE(is_certified("crun", "1.8.1"));
    EXPECT_FALSE(is_certified("crun", "1.8"));
    EXPECT_FALSE(is_certified("crun", "1.29.1"));
    EXPECT_FALSE(is_certified("crun", ""));
    EXPECT_FALSE(is_certified("runc", "1.8.1"));
}

TEST(ProbeIdentity, GivesVersionAndDigestOfTheInstalledRuntime)
{
    const auto identity = identify(Tool::crun, "/usr/bin/crun", std::chrono::milliseconds(60000));
    ASSERT_TRUE(identity) << identity.error().message();
    EXPECT_FALSE(identity->version.empty());
    EXPECT_TRUE(canon::is_digest(identity->sha256));
}

TEST(ProbeIdentity, FailsForAProgramThatIsSomethingElse)
{
    const test::Scratch scratch;
    const std::string path = scratch.write("crun", tiny_exit_program(), 0755);
    const auto identity = identify(Tool::crun, path, std::chrono::milliseconds(60000));
    ASSERT_FALSE(identity);
    EXPECT_NE(identity.error().message().find("crun --version ended with 42"), std::string::npos)
        << identity.error().message();
    EXPECT_FALSE(identify(Tool::own, scratch.path() + "/absent", std::chrono::milliseconds(5000)));
}

#if defined(__x86_64__)
TEST(ProbeIdentity, EndsAProgramThatNeverAnswers)
{
    // exit (60) becomes pause (34): the program sleeps for ever.
    std::string program = tiny_exit_program();
    const std::size_t call = program.find("\xB8\x3C");
    ASSERT_NE(call, std::string::npos);
    program[call + 1] = 34;
    const test::Scratch scratch;
    const std::string path = scratch.write("qemu", program, 0755);
    const auto identity = identify(Tool::qemu, path, std::chrono::milliseconds(200));
    ASSERT_FALSE(identity);
    EXPECT_NE(identity.error().message().find("did not end within 200 ms"), std::string::npos)
        << identity.error().message();
    EXPECT_TRUE(test::take_census().children.empty());
}
#endif

Facts good_facts()
{
    Facts facts;
    for (const auto fact : {name::kOciRuntimePath, name::kOciRuntimePinned, name::kOciFdPassing,
                            name::kInitDigest, name::kShimDigest}) {
        facts[std::string(fact)] = Fact{FactStatus::ok, "x", "seen"};
    }
    facts[std::string(name::kOciRuntimeVersion)] = Fact{FactStatus::ok, "1.8.1", ""};
    return facts;
}

TEST(ProbeDrivers, OciIsUsableWhenAllItNeedsIsThere)
{
    Facts facts = good_facts();
    derive_drivers(ProbeSettings{}, facts);
    EXPECT_EQ(facts.at(std::string(name::kDriverOci)).status, FactStatus::ok);
    EXPECT_EQ(facts.at(std::string(name::kDefaultDriver)).value, "oci");
}

TEST(ProbeDrivers, LosingAnyOneNeedClosesOci)
{
    for (const auto& [lost, fact] : good_facts()) {
        Facts facts = good_facts();
        facts.at(lost) = Fact{FactStatus::gap, "", "taken away"};
        derive_drivers(ProbeSettings{}, facts);
        const Fact& oci = facts.at(std::string(name::kDriverOci));
        EXPECT_EQ(oci.status, FactStatus::gap) << lost;
        EXPECT_NE(oci.evidence.find(lost + ": taken away"), std::string::npos) << oci.evidence;
    }
}

TEST(ProbeDrivers, AnUncertifiedRuntimeClosesOciEvenWhenPinned)
{
    Facts facts = good_facts();
    facts.at(std::string(name::kOciRuntimeVersion)).value = "1.29.1";
    derive_drivers(ProbeSettings{}, facts);
    const Fact& oci = facts.at(std::string(name::kDriverOci));
    EXPECT_EQ(oci.status, FactStatus::gap);
    EXPECT_NE(oci.evidence.find("crun 1.29.1 is not certified"), std::string::npos) << oci.evidence;
}

TEST(ProbeDrivers, NativeNeedsNobodyElsesProgram)
{
    const Fact there{FactStatus::ok, "x", "seen"};
    const Facts ours{{std::string(name::kInitDigest), there},
                     {std::string(name::kShimDigest), there},
                     {std::string(name::kMemfdSeal), there}};
    Facts facts = ours;
    derive_drivers(ProbeSettings{}, facts);
    EXPECT_EQ(facts.at(std::string(name::kDriverNative)).status, FactStatus::ok);
    EXPECT_EQ(facts.at(std::string(name::kDriverNative)).value, "default");
    for (const auto& [lost, fact] : ours) {
        facts = ours;
        facts.erase(lost);
        derive_drivers(ProbeSettings{}, facts);
        EXPECT_EQ(facts.at(std::string(name::kDriverNative)).status, FactStatus::gap) << lost;
    }
    facts = ours;
    ProbeSettings settings;
    settings.drivers = {"oci"};
    derive_drivers(settings, facts);
    EXPECT_NE(facts.at(std::string(name::kDriverNative)).evidence.find("config.toml"),
              std::string::npos);
}

TEST(ProbeDrivers, NativeSaysWhetherTheOperatorPinnedOurPrograms)
{
    const Fact there{FactStatus::ok, "x", "seen"};
    Facts facts{{std::string(name::kInitDigest), there},
                {std::string(name::kShimDigest), there},
                {std::string(name::kMemfdSeal), there}};
    ProbeSettings settings;
    settings.init.pin = Pin{"1", "sha256:x"};
    settings.shim.pin = Pin{"1", "sha256:y"};
    derive_drivers(settings, facts);
    EXPECT_EQ(facts.at(std::string(name::kDriverNative)).value, "config");
}

TEST(ProbeDrivers, OnlyConfiguredDriversExist)
{
    Facts facts = good_facts();
    ProbeSettings settings;
    settings.drivers = {"microvm"};
    derive_drivers(settings, facts);
    EXPECT_EQ(facts.at(std::string(name::kDriverOci)).status, FactStatus::gap);
    EXPECT_NE(facts.at(std::string(name::kDriverOci)).evidence.find("config.toml"),
              std::string::npos);
    EXPECT_EQ(facts.at(std::string(name::kDriverMicrovm)).status, FactStatus::gap);
    EXPECT_EQ(facts.at(std::string(name::kDefaultDriver)).status, FactStatus::gap);
}

Facts guest_facts()
{
    Facts facts = good_facts();
    for (const std::string_view fact :
         {name::kKvm, name::kVmmPath, name::kVmmDigest, name::kVirtiofsdDigest, name::kGuestKernel,
          name::kGuestInitrd, name::kInitDigest, name::kShimDigest}) {
        facts[std::string(fact)] = {FactStatus::ok, "x", "tried"};
    }
    facts[std::string(name::kVmmVersion)] = {FactStatus::ok, "7.2.22", "tried"};
    return facts;
}

ProbeSettings guest_settings()
{
    ProbeSettings settings;
    settings.drivers = {"microvm", "oci"};
    for (auto* setting :
         {&settings.vmm, &settings.virtiofsd, &settings.guest_kernel, &settings.guest_initrd}) {
        setting->pin = Pin{"6.12.1", "sha256:x"};
    }
    return settings;
}

TEST(ProbeDrivers, MicrovmWantsEveryFileAndAnAccelerator)
{
    Facts facts = guest_facts();
    derive_drivers(guest_settings(), facts);
    EXPECT_EQ(facts.at(std::string(name::kAccelerator)).value, "kvm");
    EXPECT_EQ(facts.at(std::string(name::kVmmPinned)).value, "config");
    EXPECT_EQ(facts.at(std::string(name::kGuestRelease)).value, "6.12.1");
    EXPECT_EQ(judge_microvm(guest_settings(), facts).status, FactStatus::ok);
    for (const std::string_view needed :
         {name::kVmmDigest, name::kVirtiofsdDigest, name::kGuestKernel, name::kGuestInitrd,
          name::kVmmPinned, name::kAccelerator}) {
        Facts less = facts;
        less[std::string(needed)] = {FactStatus::gap, "", "taken away"};
        const Finding judged = judge_microvm(guest_settings(), less);
        EXPECT_EQ(judged.status, FactStatus::gap) << needed;
        EXPECT_NE(judged.evidence.find(needed), std::string::npos) << judged.evidence;
    }
    facts[std::string(name::kVmmVersion)].value = "9.0.0";
    EXPECT_EQ(judge_microvm(guest_settings(), facts).status, FactStatus::gap);
}

TEST(ProbeDrivers, MicrovmIsSaidToBeThereWhereItsFactsAre)
{
    Facts facts = guest_facts();
    derive_drivers(guest_settings(), facts);
    EXPECT_EQ(facts.at(std::string(name::kDriverMicrovm)).status, FactStatus::ok);
}

TEST(ProbeDrivers, EmulationIsTakenOnlyWhereItIsAcceptedInWords)
{
    Facts facts = guest_facts();
    facts[std::string(name::kKvm)] = {FactStatus::gap, "", "no interrupt (kvm_pvm host)"};
    ProbeSettings settings = guest_settings();
    derive_drivers(settings, facts);
    const Fact& accelerator = facts.at(std::string(name::kAccelerator));
    EXPECT_EQ(accelerator.status, FactStatus::gap);
    EXPECT_NE(accelerator.evidence.find("kvm_pvm"), std::string::npos);
    settings.accelerator = "tcg";
    derive_drivers(settings, facts);
    EXPECT_EQ(facts.at(std::string(name::kAccelerator)).status, FactStatus::gap);
    settings.accept_emulated = true;
    derive_drivers(settings, facts);
    EXPECT_EQ(facts.at(std::string(name::kAccelerator)).value, "tcg");
}

TEST(ProbeDrivers, AGuestWithoutPinsOfItsOwnIsAGap)
{
    Facts facts = guest_facts();
    ProbeSettings settings = guest_settings();
    settings.vmm.pin.reset();
    derive_drivers(settings, facts);
    EXPECT_EQ(facts.at(std::string(name::kVmmPinned)).value, "default");
    settings.guest_initrd.pin.reset();
    derive_drivers(settings, facts);
    EXPECT_EQ(facts.at(std::string(name::kVmmPinned)).status, FactStatus::gap);
}

TEST(ProbeDrivers, WhatTheOperatorSaysOfGuestsBecomesFacts)
{
    Facts facts = guest_facts();
    ProbeSettings settings = guest_settings();
    settings.guest_cpus = 3;
    settings.guest_memory = 1U << 30;
    settings.guest_stores = {"/gnu/store", "/nix/store"};
    derive_drivers(settings, facts);
    EXPECT_EQ(facts.at(std::string(name::kGuestCpus)).value, "3");
    EXPECT_EQ(facts.at(std::string(name::kGuestMemory)).value, "1073741824");
    EXPECT_EQ(facts.at(std::string(name::kGuestStores)).value, "/gnu/store:/nix/store");
    EXPECT_EQ(facts.at(std::string(name::kGuestShares)).value, "");
    EXPECT_EQ(facts.at(std::string(name::kGuestShares)).status, FactStatus::note);
}

TEST(ProbeSettings, StandardPathsKeepWhatTheOperatorSaid)
{
    ProbeSettings settings;
    settings.runtime.path = "/opt/crun";
    fill_standard_paths(settings, "/opt/sandbox/bin");
    EXPECT_EQ(settings.runtime.path, "/opt/crun");
    EXPECT_EQ(settings.init.path, "/opt/sandbox/bin/sandbox-init");
    EXPECT_TRUE(settings.guest_kernel.path.empty());
}

}  // namespace
}  // namespace sandbox::probe
