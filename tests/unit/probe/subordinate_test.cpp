// SPDX-License-Identifier: Apache-2.0
#include "probe/subordinate.hpp"

#include <gtest/gtest.h>

namespace sandbox::probe {
namespace {

TEST(SubordinateIds, ReadsRangesAndSkipsWhatIsNone)
{
    const auto ranges = parse_subordinate("alice:100000:65536\n"
                                          "# bob:165536:65536 is a comment to people only\n"
                                          "1001:231072:131072\n"
                                          "carol:x:65536\n"
                                          "dave:1:2:3\n"
                                          "\n"
                                          "eve:362144:65536");
    ASSERT_EQ(ranges.size(), 3U);
    EXPECT_EQ(ranges[0].owner, "alice");
    EXPECT_EQ(ranges[0].base, 100000U);
    EXPECT_EQ(ranges[1].owner, "1001");
    EXPECT_EQ(ranges[1].count, 131072U);
    EXPECT_EQ(ranges[2].owner, "eve");
}

TEST(SubordinateIds, NothingInAnEmptyFile) { EXPECT_TRUE(parse_subordinate("").empty()); }

TEST(SubordinateIds, TheFirstLargeEnoughOfEachFileIsTheCallers)
{
    const std::string users = "alice:100000:1000\n1001:200000:131072\nbob:400000:65536\n";
    const std::string groups = "1001:700000:65536\n";
    EXPECT_EQ(choose_range(users, groups, 1001, "alice", 65536), (OwnRange{200000, 700000, 65536}));
    EXPECT_EQ(choose_range(users, groups, 1001, "alice", 1000)->users, 100000U);
    // By name only where there is one.
    EXPECT_FALSE(choose_range(users, groups, 1002, "", 1));
    EXPECT_FALSE(choose_range(users, groups, 1002, "bob", 65536)) << "bob has no groups";
    EXPECT_FALSE(choose_range(users, groups, 1001, "alice", 131072)) << "too few groups";
}

TEST(SubordinateIds, RootAndNoIdAreInNobodysRange)
{
    for (const char* text : {"7:0:65536\n", "7:4294901760:65536\n", "7:1:18446744073709551615\n",
                             "7:18446744073709551615:2\n"})
        EXPECT_FALSE(choose_range(text, text, 7, "", 1)) << text;
}

TEST(SubordinateIds, RangesAtTheTopOfAllIdsAreNobodys)
{
    // The last 65536 ids below "no id" (setresuid(2)): no useradd hands them out.
    EXPECT_EQ(subordinate_overlap(0xFFFF0000ULL - 65536, 65536), "");
}

}  // namespace
}  // namespace sandbox::probe
