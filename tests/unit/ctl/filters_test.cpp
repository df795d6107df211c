// SPDX-License-Identifier: Apache-2.0
#include "ctl/filters.hpp"

#include <gtest/gtest.h>

#include "../ledger/support.hpp"

namespace sandbox::ctl {
namespace {

supervisor::Listed web()
{
    supervisor::Listed listed;
    listed.sandbox = ledger::test::sandbox(0x6e1f, "web-1");
    listed.sandbox.profile = "web";
    listed.sandbox.labels = R"({"team":"ml","tier":"1"})";
    listed.sandbox.state = ledger::State::running;
    listed.shim_alive = true;
    return listed;
}

bool lets(const std::vector<std::string>& words)
{
    const auto filters = parse_filters(words);
    EXPECT_TRUE(filters) << filters.error().message();
    return matches(filters.value(), web());
}

TEST(PsFilter, LetsEverythingThroughWithoutAWord) { EXPECT_TRUE(lets({})); }

TEST(PsFilter, KnowsNameIdStateProfileAndLabel)
{
    EXPECT_TRUE(lets({"name=web"}));
    EXPECT_TRUE(lets({"name=b-1"}));
    EXPECT_FALSE(lets({"name=shop"}));
    EXPECT_TRUE(lets({"id=0000"}));
    EXPECT_FALSE(lets({"id=6e1f"}));
    EXPECT_TRUE(lets({"state=running"}));
    EXPECT_TRUE(lets({"status=running"}));
    EXPECT_FALSE(lets({"state=stopped"}));
    EXPECT_TRUE(lets({"profile=web"}));
    EXPECT_FALSE(lets({"profile=we"}));
    EXPECT_TRUE(lets({"label=team"}));
    EXPECT_TRUE(lets({"label=team=ml"}));
    EXPECT_FALSE(lets({"label=team=ops"}));
    EXPECT_FALSE(lets({"label=owner"}));
}

TEST(PsFilter, OfOneKeyOneHoldsOfDifferentKeysAll)
{
    EXPECT_TRUE(lets({"state=stopped", "state=running"}));
    EXPECT_FALSE(lets({"state=running", "name=shop"}));
    EXPECT_TRUE(lets({"label=team=ml", "label=tier"}));
    EXPECT_FALSE(lets({"label=team=ml", "label=tier=2"}));
}

TEST(PsFilter, RefusesAnUnknownKeyAndAWordWithoutValue)
{
    for (const char* word : {"owner=me", "name", "=x", ""}) {
        EXPECT_FALSE(parse_filters({word})) << word;
    }
}

TEST(PruneFilter, TakesWhatWasMadeBeforeATime)
{
    constexpr std::int64_t kNow = 1'767'323'045;  // 2026-01-02T03:04:05Z, when `web` was made
    EXPECT_TRUE(may_prune(parse_prune({}, kNow).value(), web()));
    EXPECT_TRUE(may_prune(parse_prune({"until=2026-01-02T03:04:06Z"}, kNow).value(), web()));
    EXPECT_FALSE(may_prune(parse_prune({"until=1h"}, kNow).value(), web()));
    EXPECT_FALSE(
        may_prune(parse_prune({"until=2027-01-01T00:00:00Z", "name=x"}, kNow).value(), web()));
    EXPECT_FALSE(parse_prune({"until=then"}, kNow));
}

std::deque<std::string> last(std::uint64_t lines,
                             const std::vector<std::pair<std::string, bool>>& in)
{
    Tail tail(lines);
    for (const auto& [text, ends] : in) tail.add(text, ends);
    return tail.take();
}

TEST(LogTail, KeepsWholeLinesOfSeveralRecordsAndTheUnfinishedLast)
{
    const std::vector<std::pair<std::string, bool>> log{
        {"a", true}, {"b1", false}, {"b2", true}, {"c", true}, {"d1", false}};
    EXPECT_EQ(last(0, log), (std::deque<std::string>{}));
    EXPECT_EQ(last(1, log), (std::deque<std::string>{"d1"}));
    EXPECT_EQ(last(2, log), (std::deque<std::string>{"c", "d1"}));
    EXPECT_EQ(last(3, log), (std::deque<std::string>{"b1", "b2", "c", "d1"}));
    EXPECT_EQ(last(9, log).size(), log.size());
}

TEST(LogCatchUp, LetsThroughWhatTheFirstReadingHadNot)
{
    CatchUp whole("two", "t2");
    EXPECT_FALSE(whole.is_new("one", "t1"));
    EXPECT_FALSE(whole.is_new("one more", "t2"));
    EXPECT_FALSE(whole.is_new("two", "t2"));
    EXPECT_TRUE(whole.is_new("three", "t2"));
    EXPECT_TRUE(whole.is_new("one", "t1"));
    CatchUp rotated("two", "t2");  // its record is gone by now
    EXPECT_TRUE(rotated.is_new("three", "t3"));
    CatchUp nothing("", "");
    EXPECT_TRUE(nothing.is_new("one", "t1"));
}

TEST(LogSince, TakesATimeSecondsAndADuration)
{
    constexpr std::int64_t kNow = 1'767'323'045;  // 2026-01-02T03:04:05Z
    EXPECT_EQ(parse_since("2026-01-02T03:04:05Z", kNow).value(), "2026-01-02T03:04:05");
    EXPECT_EQ(parse_since("2026-01-02T03:04:05.678Z", kNow).value(), "2026-01-02T03:04:05.678");
    EXPECT_EQ(parse_since("1767323045", kNow).value(), "2026-01-02T03:04:05");
    EXPECT_EQ(parse_since("65s", kNow).value(), "2026-01-02T03:03:00");
    for (const char* wrong : {"", "yesterday", "2026-01-02", "2026-01-02T03:04:05", "-5",
                              "2026-01-02T03:04:05.Z", "2026-01-02T03:04:05.xZ"}) {
        EXPECT_FALSE(parse_since(wrong, kNow)) << wrong;
    }
}

}  // namespace
}  // namespace sandbox::ctl
