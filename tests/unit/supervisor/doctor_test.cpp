// SPDX-License-Identifier: Apache-2.0
#include "canon/json.hpp"
#include "supervisor/doctor.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace sandbox::supervisor {
namespace {

namespace name = facts::name;
using facts::Fact;
using facts::FactStatus;

// A host where everything is there and nothing is neglected.
std::map<std::string, Fact> good_host()
{
    std::map<std::string, Fact> facts;
    for (const std::string_view fact : facts::all_names()) {
        facts[std::string(fact)] = Fact{FactStatus::ok, "yes", "seen"};
    }
    for (const auto duty : {name::kHostSmt, name::kHostKsm, name::kHostSwap}) {
        facts[std::string(duty)] = Fact{FactStatus::note, "off", "read"};
    }
    facts[std::string(name::kHostMitigations)] = Fact{FactStatus::note, "mitigated", "read"};
    facts[std::string(name::kHostCorePattern)] = Fact{FactStatus::note, "file", "read"};
    facts[std::string(name::kLegacyTiocsti)] = Fact{FactStatus::note, "0", "read"};
    facts[std::string(name::kDefaultDriver)] = Fact{FactStatus::ok, "oci", "config"};
    facts[std::string(name::kOciRuntimeVersion)] = Fact{FactStatus::ok, "1.8.1", "asked"};
    facts[std::string(name::kVmmVersion)] = Fact{FactStatus::ok, "9.0", "asked"};
    return facts;
}

DoctorInput input_of(std::map<std::string, Fact> facts)
{
    DoctorInput input;
    input.snapshot = facts::CapabilitySnapshot(std::move(facts));
    input.now = "2026-06-15T12:00:00Z";
    return input;
}

const Finding& find(const std::vector<Finding>& findings, std::string_view wanted)
{
    static const Finding kNone;
    const auto found = std::ranges::find(findings, wanted, &Finding::name);
    return found == findings.end() ? kNone : *found;
}

policy::LocatedBundle bundle(std::string name, std::string valid_until)
{
    policy::LocatedBundle located;
    located.bundle.name = std::move(name);
    located.bundle.valid_until = std::move(valid_until);
    return located;
}

TEST(Doctor, FindsAGoodHostGood)
{
    const auto report = examine(input_of(good_host()));
    EXPECT_EQ(exit_status(report), 0) << render(report);
    for (const Finding& finding : report.facts) EXPECT_TRUE(finding.mend.empty()) << finding.name;
}

TEST(Doctor, KnowsWhyAndHowToMendForEveryFact)
{
    for (const std::string_view fact : facts::all_names()) {
        EXPECT_FALSE(help_for(fact).why.empty()) << fact;
    }
    EXPECT_TRUE(help_for("no.such.fact").why.empty());
}

TEST(Doctor, OffersAMendForEveryGapThatMatters)
{
    const auto notes = {name::kKernelArch,  name::kKernelRelease, name::kCpuCount,
                        name::kMemoryTotal, name::kOnlineCpus,    name::kVsockNsMode};
    const auto report = examine(input_of({}));
    for (const Finding& finding : report.facts) {
        if (std::ranges::find(notes, finding.name) != notes.end()) continue;
        EXPECT_FALSE(finding.mend.empty()) << finding.name;
    }
    EXPECT_EQ(report.facts.size(), facts::all_names().size());
    EXPECT_EQ(exit_status(report), 1);
}

TEST(Doctor, FailsForABaselineGapAndOnlyWarnsForAnother)
{
    auto host = good_host();
    host[std::string(name::kOverlayfs)] = Fact{FactStatus::gap, "", "ENODEV"};
    EXPECT_EQ(exit_status(examine(input_of(host))), 0);
    host[std::string(name::kUserNamespace)] = Fact{FactStatus::gap, "", "EPERM"};
    const auto report = examine(input_of(host));
    EXPECT_EQ(exit_status(report), 1);
    EXPECT_EQ(find(report.facts, name::kOverlayfs).severity, Severity::warning);
    EXPECT_EQ(find(report.facts, name::kUserNamespace).severity, Severity::serious);
}

TEST(Doctor, FailsWhenTheDefaultDriverCannotBeUsed)
{
    auto host = good_host();
    host[std::string(name::kDriverMicrovm)] = Fact{FactStatus::gap, "", "not built"};
    EXPECT_EQ(exit_status(examine(input_of(host))), 0);
    host[std::string(name::kDriverOci)] = Fact{FactStatus::gap, "", "crun is missing"};
    EXPECT_EQ(exit_status(examine(input_of(host))), 1);
    EXPECT_EQ(find(examine(input_of(host)).facts, name::kDriverOci).mend,
              "mend the facts that `seen` names");
    host[std::string(name::kDriverOci)].evidence = "oci is not among `drivers` in config.toml";
    EXPECT_NE(find(examine(input_of(host)).facts, name::kDriverOci).mend.find("add oci"),
              std::string::npos);
}

TEST(Doctor, ExplainsKvmPvmInWords)
{
    auto host = good_host();
    host[std::string(name::kKvm)] = Fact{
        FactStatus::gap, "", "KVM_EXIT_INTERNAL_ERROR suberror 1 at int3 (kvm_pvm host)"};
    const Finding kvm = find(examine(input_of(host)).facts, name::kKvm);
    EXPECT_NE(kvm.why.find("delivers no interrupt"), std::string::npos) << kvm.why;
    EXPECT_FALSE(kvm.mend.empty());
    host[std::string(name::kKvm)].evidence = "open /dev/kvm: No such file";
    EXPECT_EQ(find(examine(input_of(host)).facts, name::kKvm).why.find("kvm_pvm"),
              std::string::npos);
}

TEST(Doctor, ListsAdvisoriesOfTheToolsFoundWithoutFailing)
{
    const auto report = examine(input_of(good_host()));
    EXPECT_EQ(report.advisories.size(), 3U);
    EXPECT_NE(find(report.advisories, "CVE-2026-47766").mend.find("1.28"), std::string::npos);
    EXPECT_NE(find(report.advisories, "CVE-2026-88264").why.find("not reached"), std::string::npos);
    auto host = good_host();
    host[std::string(name::kVmmVersion)].value = "7.2.22";
    EXPECT_EQ(examine(input_of(host)).advisories.size(), 4U);
    EXPECT_EQ(exit_status(report), 0);
}

TEST(Doctor, WarnsOfEachNeglectedDuty)
{
    const std::vector<std::pair<std::string_view, std::string>> neglected{
        {name::kHostSmt, "on"},           {name::kHostKsm, "on"},
        {name::kHostSwap, "on"},          {name::kHostMitigations, "vulnerable: tsa"},
        {name::kHostCorePattern, "pipe"}, {name::kLegacyTiocsti, "1"}};
    for (const auto& [duty, value] : neglected) {
        auto host = good_host();
        EXPECT_EQ(find(examine(input_of(host)).duties, duty).severity, Severity::ok) << duty;
        host[std::string(duty)].value = value;
        const Finding finding = find(examine(input_of(host)).duties, duty);
        EXPECT_EQ(finding.severity, Severity::warning) << duty;
        EXPECT_FALSE(finding.mend.empty()) << duty;
    }
}

TEST(Doctor, SaysThatAnExpiredBundleKeepsBinding)
{
    auto input = input_of(good_host());
    input.bundles = {bundle("old", "2026-01-31"), bundle("new", "2027-01-31"), bundle("ever", "")};
    const auto report = examine(input);
    EXPECT_EQ(find(report.policy, "policy.old").severity, Severity::warning);
    EXPECT_NE(find(report.policy, "policy.old").why.find("keeps binding"), std::string::npos);
    EXPECT_EQ(find(report.policy, "policy.new").severity, Severity::ok);
    EXPECT_EQ(find(report.policy, "policy.ever").severity, Severity::ok);
    EXPECT_EQ(exit_status(report), 0);
}

TEST(Doctor, FailsForABrokenBundleEvenForARunnableProfile)
{
    auto input = input_of(good_host());
    input.profile = "pytool";
    EXPECT_EQ(exit_status(examine(input)), 0);
    input.broken = {{"/etc/sandbox/org.d/a.toml", "has mode 0666"}};
    EXPECT_EQ(exit_status(examine(input)), 1);
}

TEST(Doctor, JudgesAProfileByItsDenialsAlone)
{
    auto host = good_host();
    host[std::string(name::kUserNamespace)] = Fact{FactStatus::gap, "", "EPERM"};
    auto input = input_of(host);
    input.profile = "pytool";
    EXPECT_EQ(exit_status(examine(input)), 0);
    resolve::Denial denial;
    denial.denial_class = resolve::DenialClass::backend_unavailable;
    denial.key = "isolation";
    denial.mend = "set isolation";
    input.denials = {denial};
    const auto report = examine(input);
    EXPECT_EQ(exit_status(report), 1);
    EXPECT_EQ(find(report.profile, "isolation").value, "BACKEND_UNAVAILABLE");
    EXPECT_NE(render(report).find("profile pytool: denied here"), std::string::npos);
}

std::map<std::string, Fact> host_of_a_user()
{
    auto host = good_host();
    host[std::string(name::kPrivilege)] = Fact{FactStatus::ok, "user", "effective uid 65534"};
    host[std::string(name::kSubordinateIds)] = Fact{
        FactStatus::gap, "", "/etc/subuid gives no range of 65536 ids to uid 65534"};
    host[std::string(name::kCgroupParent)] = Fact{FactStatus::gap, "", "mkdir: Permission denied"};
    host[std::string(name::kDriverNative)] = Fact{FactStatus::gap, "",
                                                  "ids.subordinate: no range; cgroup.parent: none"};
    host[std::string(name::kOverlayfs)] = Fact{FactStatus::gap, "",
                                               "mount: Operation not permitted"};
    return host;
}

TEST(Doctor, TellsAnOrdinaryUserWhatIsMissingEachByItself)
{
    const auto report = examine(input_of(host_of_a_user()));
    EXPECT_EQ(exit_status(report), 1);
    EXPECT_NE(find(report.user, "driver").evidence.find("ids.subordinate"), std::string::npos);
    EXPECT_EQ(find(report.user, "driver").severity, Severity::serious);
    EXPECT_EQ(find(report.user, "newuidmap").severity, Severity::ok);
    EXPECT_EQ(find(report.user, "user namespace").severity, Severity::ok);
    EXPECT_EQ(find(report.user, "subordinate ids").severity, Severity::warning);
    EXPECT_NE(find(report.user, "subordinate ids").mend.find("usermod"), std::string::npos);
    EXPECT_NE(find(report.user, "delegated cgroup").mend.find("Delegate=yes"), std::string::npos);
    EXPECT_NE(render(report).find("ORDINARY USER"), std::string::npos);
    EXPECT_EQ(to_json(report).at("user").size(), 5U);
}

TEST(Doctor, SaysOfARefusedTrialThatItProvesNothing)
{
    const auto report = examine(input_of(host_of_a_user()));
    const Finding& overlay = find(report.facts, name::kOverlayfs);
    EXPECT_EQ(overlay.mend, "this user may not try it: run doctor as root to judge the host");
    auto root = host_of_a_user();
    root[std::string(name::kPrivilege)] = Fact{FactStatus::ok, "root", "effective uid 0"};
    const auto of_root = examine(input_of(root));
    EXPECT_TRUE(of_root.user.empty());
    EXPECT_NE(find(of_root.facts, name::kOverlayfs).mend.find("CONFIG_OVERLAY_FS"),
              std::string::npos);
}

TEST(Doctor, AUserWithEverythingLaunches)
{
    auto host = good_host();
    host[std::string(name::kPrivilege)] = Fact{FactStatus::ok, "user", "effective uid 1000"};
    const auto report = examine(input_of(host));
    EXPECT_EQ(exit_status(report), 0);
    EXPECT_EQ(report.user.size(), 5U);
    EXPECT_EQ(render(report).find("cannot"), std::string::npos);
    host[std::string(name::kDriverNative)] = Fact{FactStatus::gap, "", "not configured"};
    EXPECT_EQ(exit_status(examine(input_of(host))), 1);
}

TEST(Doctor, PrintsNoEscapeFromEvidence)
{
    auto host = good_host();
    host[std::string(name::kOverlayfs)] = Fact{FactStatus::gap, "", "\x1b[2Jgone"};
    const std::string text = render(examine(input_of(host)));
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_NE(text.find("\\x1b[2Jgone"), std::string::npos);
}

TEST(Doctor, GivesTheSameInJson)
{
    const auto json = to_json(examine(input_of({})));
    EXPECT_EQ(json.at("ok"), false);
    EXPECT_EQ(json.at("facts").size(), facts::all_names().size());
    EXPECT_FALSE(json.contains("profile"));
    EXPECT_TRUE(canon::serialize(json));
}

TEST(DoctorDates, ADateCountsToItsEnd)
{
    EXPECT_FALSE(is_past("2026-01-31", "2026-01-31T23:59:59Z"));
    EXPECT_TRUE(is_past("2026-01-31", "2026-02-01T00:00:00Z"));
    EXPECT_FALSE(is_past("2024-02-29", "2024-02-29T12:00:00Z"));
    EXPECT_FALSE(is_past("2025-12-31", "2025-12-31T00:00:00Z"));
    EXPECT_TRUE(is_past("2025-12-31", "2026-01-01T00:00:00Z"));
}

TEST(DoctorDates, OffsetsAndFractionsAreUnderstood)
{
    EXPECT_FALSE(is_past("2026-01-31T10:00:00+02:00", "2026-01-31T08:00:00Z"));
    EXPECT_TRUE(is_past("2026-01-31T10:00:00+02:00", "2026-01-31T08:00:01Z"));
    EXPECT_FALSE(is_past("2026-01-31T10:00:00-05:30", "2026-01-31T15:30:00Z"));
    EXPECT_FALSE(is_past("2026-01-31t10:00:00.5z", "2026-01-31T10:00:00Z"));
}

TEST(DoctorDates, TextOfAnotherShapeCountsAsPast)
{
    for (const auto text :
         {"", "soon", "2026", "2026-1-31", "2026-01-31T10:00", "2026-01-31T10:00:00",
          "2026-01-31T10:00:00+2", "2026-01-31T10:00:00Zjunk"}) {
        EXPECT_TRUE(is_past(text, "2020-01-01T00:00:00Z")) << text;
    }
}

}  // namespace
}  // namespace sandbox::supervisor
