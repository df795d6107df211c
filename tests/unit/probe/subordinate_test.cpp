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

TEST(SubordinateIds, RangesAtTheTopOfAllIdsAreNobodys)
{
    // The last 65536 ids below "no id" (setresuid(2)): no useradd hands them out.
    EXPECT_EQ(subordinate_overlap(0xFFFF0000ULL - 65536, 65536), "");
}

}  // namespace
}  // namespace sandbox::probe
