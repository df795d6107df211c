// SPDX-License-Identifier: Apache-2.0
#include "canon/json.hpp"
#include "facts/facts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace sandbox::facts {
namespace {

CapabilitySnapshot sample()
{
    return CapabilitySnapshot({{"landlock.abi", {FactStatus::ok, "7", "created a ruleset"}},
                               {"kvm.guest", {FactStatus::gap, "", "no interrupt"}},
                               {"kernel.release", {FactStatus::note, "6.1.0", "uname"}}});
}

TEST(Snapshot, AnswersWithTheValueOfFactsThatAreOkOnly)
{
    EXPECT_EQ(sample().value("landlock.abi"), "7");
    EXPECT_EQ(sample().value("kernel.release"), "");
    EXPECT_TRUE(sample().ok("landlock.abi"));
    EXPECT_FALSE(sample().ok("kvm.guest"));
    EXPECT_FALSE(sample().ok("kernel.release"));
}

TEST(Snapshot, TreatsAnUnknownNameAsAGap)
{
    EXPECT_EQ(sample().find("no.such"), nullptr);
    EXPECT_FALSE(sample().ok("no.such"));
}

TEST(Snapshot, SurvivesItsJson)
{
    const auto back = snapshot_from_json(to_json(sample()));
    ASSERT_TRUE(back);
    EXPECT_EQ(*back, sample());
}

TEST(Snapshot, RefusesJsonThatIsNotExactlyASnapshot)
{
    const auto refuses = [](const char* text) {
        const auto json = canon::parse(text);
        return json && !snapshot_from_json(*json);
    };
    EXPECT_TRUE(refuses("[]"));
    EXPECT_TRUE(refuses(R"({"facts":{}})"));
    EXPECT_TRUE(refuses(R"({"facts":{},"version":2})"));
    EXPECT_TRUE(refuses(R"({"facts":{},"version":"1"})"));
    EXPECT_TRUE(refuses(R"({"facts":[],"version":1})"));
    EXPECT_TRUE(refuses(R"({"facts":{},"version":1,"x":1})"));
    EXPECT_TRUE(refuses(R"({"facts":{"a":{"status":"ok","value":"v"}},"version":1})"));
    EXPECT_TRUE(
        refuses(R"({"facts":{"a":{"status":"yes","value":"v","evidence":""}},"version":1})"));
    EXPECT_TRUE(refuses(R"({"facts":{"a":{"status":"ok","value":1,"evidence":""}},"version":1})"));
    EXPECT_TRUE(
        refuses(R"({"facts":{"A b":{"status":"ok","value":"v","evidence":""}},"version":1})"));
    EXPECT_TRUE(
        refuses(R"({"facts":{"a":{"status":"ok","value":"v","evidence":"","x":""}},"version":1})"));
    EXPECT_FALSE(
        refuses(R"({"facts":{"a":{"status":"ok","value":"v","evidence":""}},"version":1})"));
}

TEST(Mend, IsThereForEveryFactALaunchDependsOn)
{
    // Informative facts need none.
    constexpr std::array<std::string_view, 6> kNotes{"host.cpus",      "host.cpuset",
                                                     "host.memory",    "kernel.arch",
                                                     "kernel.release", "kernel.vsock_ns_mode"};
    for (const std::string_view name : all_names()) {
        const bool note = std::find(kNotes.begin(), kNotes.end(), name) != kNotes.end();
        EXPECT_EQ(mend(name).empty(), note) << name;
    }
    EXPECT_EQ(mend("no.such"), "");
}

TEST(Names, AreSortedAndHoldTheOnesTheResolverAsksFor)
{
    EXPECT_TRUE(std::is_sorted(all_names().begin(), all_names().end()));
    for (const std::string_view name :
         {name::kKvm, name::kSeccompRulesStrict, name::kOciRuntimePinned, name::kGuestInitrd}) {
        EXPECT_NE(std::find(all_names().begin(), all_names().end(), name), all_names().end());
    }
}

}  // namespace
}  // namespace sandbox::facts
