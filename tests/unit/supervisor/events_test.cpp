// SPDX-License-Identifier: Apache-2.0
#include "supervisor/events.hpp"

#include <gtest/gtest.h>

#include "../ledger/support.hpp"
#include "canon/json.hpp"
#include "shim/audit_log.hpp"
#include "supervisor/stats.hpp"

namespace sandbox::supervisor {
namespace {

using ledger::test::TempDir;

audit::Subject subject(const char* name = "web", const char* time = "2026-01-02T03:04:05.678Z")
{
    return {SandboxId(std::string(32, 'a')), SandboxName(name), 2, "op", time};
}

std::string kind(audit::Body body)
{
    return to_event(7, {subject(), std::move(body)})["event"].get<std::string>();
}

TEST(EventKinds, AreWhatPeopleCallIt)
{
    EXPECT_EQ(kind(audit::Acted{"pause", ""}), "paused");
    EXPECT_EQ(kind(audit::Acted{"resume", ""}), "resumed");
    EXPECT_EQ(kind(audit::Acted{"rm", ""}), "removed");
    EXPECT_EQ(kind(audit::Acted{"create", ""}), "created");
    EXPECT_EQ(kind(audit::Acted{"ttl", ""}), "ttl");
    EXPECT_EQ(kind(audit::Acted{"idle", ""}), "idle");
    EXPECT_EQ(kind(audit::Violation{"limit.memory", "x", 1}), "oom");
    EXPECT_EQ(kind(audit::Violation{"limit.pids", "x", 1}), "violation");
    EXPECT_EQ(kind(audit::Restarting{1, {}, 5, "x"}), "restarting");
    EXPECT_EQ(kind(audit::HealthChanged{"healthy", 0, ""}), "health");
}

TEST(EventKinds, CarryWhoAndWhenBesideTheirOwn)
{
    const auto event = to_event(7, {subject(), audit::Exited{"", std::nullopt, 9, "oom", 3}});
    EXPECT_EQ(canon::serialize(event).value(),
              R"({"code":null,"event":"exited","generation":2,"id":")" + std::string(32, 'a') +
                  R"(","name":"web","oom_kills":3,"reason":"oom","seq":7,"session":"",)"
                  R"("signal":9,"time":"2026-01-02T03:04:05.678Z"})");
}

TEST(EventQueries, SelectByNameIdNumberAndTime)
{
    EXPECT_TRUE(is_asked_for({}, 1, subject()));
    EXPECT_TRUE(is_asked_for({.reference = "web"}, 1, subject()));
    EXPECT_FALSE(is_asked_for({.reference = "we"}, 1, subject()));
    EXPECT_TRUE(is_asked_for({.reference = "aaaaaa"}, 1, subject()));
    EXPECT_FALSE(is_asked_for({.reference = "aaa"}, 1, subject())) << "too short for an id";
    EXPECT_FALSE(is_asked_for({.reference = "aaaab"}, 1, subject()));
    EXPECT_FALSE(is_asked_for({.after = 5}, 5, subject()));
    EXPECT_TRUE(is_asked_for({.after = 5}, 6, subject()));
    EXPECT_TRUE(is_asked_for({.since = "2026-01-02T03:04:05"}, 1, subject()));
    EXPECT_FALSE(is_asked_for({.since = "2026-01-02T03:04:06"}, 1, subject()));
}

class EventLog : public testing::Test {
protected:
    EventLog() : ledger_(ledger::test::open(dir_)) {}

    void happen(const char* name, const char* verb)
    {
        auto transaction = VALUE(ledger_.begin());
        EXPECT_OK(shim::queue_audit(ledger_, transaction, subject(name), {audit::Acted{verb, ""}}));
        EXPECT_OK(transaction.commit());
    }
    std::vector<std::uint64_t> read(const EventQuery& query = {}, std::size_t most = 1000)
    {
        std::vector<std::uint64_t> seen;
        EXPECT_OK(read_events(dir_.path(), ledger_, query, [&](const canon::Json& event) {
            seen.push_back(event["seq"].get<std::uint64_t>());
            return seen.size() < most;
        }));
        return seen;
    }

    TempDir dir_;
    ledger::Ledger ledger_;
};

using Numbers = std::vector<std::uint64_t>;

TEST_F(EventLog, IsEmptyBeforeAnythingHappened) { EXPECT_EQ(read(), Numbers{}); }

TEST_F(EventLog, GoesOnFromTheFileIntoTheQueue)
{
    happen("a", "stop");
    happen("b", "stop");
    EXPECT_OK(shim::flush_audit(ledger_, dir_.path()));
    happen("a", "kill");
    EXPECT_EQ(read(), (Numbers{1, 2, 3}));
    EXPECT_EQ(read({.after = 1}), (Numbers{2, 3}));
    EXPECT_EQ(read({.reference = "a"}), (Numbers{1, 3}));
    EXPECT_EQ(read({}, 2), (Numbers{1, 2})) << "the sink had enough";
}

TEST_F(EventLog, FollowsCommitsAndFlushesEachOnce)
{
    happen("a", "stop");
    std::vector<std::uint64_t> seen;
    auto other = ledger::test::open(dir_);
    EXPECT_OK(read_events(dir_.path(), other, {.follow = true}, [&](const canon::Json& event) {
        seen.push_back(event["seq"].get<std::uint64_t>());
        // From within: whatever happens now must wake the reader by itself.
        if (seen.size() < 4) happen("a", "kill");
        if (seen.size() % 2 == 0) {
            EXPECT_OK(shim::flush_audit(ledger_, dir_.path()));
        }
        return seen.size() < 4;
    }));
    EXPECT_EQ(seen, (Numbers{1, 2, 3, 4}));
}

TEST_F(EventLog, StopsFollowingWhenItIsToldTo)
{
    sys::Pipe stop = VALUE(sys::make_pipe());
    stop.write.reset();
    EXPECT_OK(read_events(
        dir_.path(), ledger_, {.follow = true}, [](const canon::Json&) { return true; },
        stop.read.get()));
}

TEST_F(EventLog, RefusesALineThatIsNoRecord)
{
    ledger::test::write_bytes(dir_.path() + "/audit.jsonl", "{\"seq\":1}\n");
    EXPECT_FALSE(read_events(dir_.path(), ledger_, {}, [](const canon::Json&) { return true; }));
    ledger::test::write_bytes(dir_.path() + "/audit.jsonl", "{}\n");
    EXPECT_FALSE(read_events(dir_.path(), ledger_, {}, [](const canon::Json&) { return true; }));
}

TEST(StatsLimits, KnowNoLimitWhenTheySeeIt)
{
    EXPECT_EQ(parse_limit("67108864"), 67'108'864U);
    EXPECT_EQ(parse_limit("0"), 0U);
    for (const char* none : {"max", "9223372036854771712", "", "12 34", "-1"}) {
        EXPECT_EQ(parse_limit(none), std::nullopt) << none;
    }
}

TEST(StatsRates, NeedTwoLooksAtTheSameRun)
{
    Stats before;
    before.id = SandboxId(std::string(32, 'a'));
    before.cpu_ns = 1'000'000'000;
    before.moment_ns = 10'000'000'000;
    Stats now = before;
    now.cpu_ns += 1'500'000'000;
    now.moment_ns += 1'000'000'000;
    EXPECT_EQ(cpu_millis(now, &before), 1500U);
    EXPECT_EQ(cpu_millis(now, nullptr), std::nullopt);
    EXPECT_EQ(cpu_millis(before, &before), std::nullopt);
    EXPECT_EQ(cpu_millis(before, &now), std::nullopt) << "a new generation began at zero";
    now.id = SandboxId(std::string(32, 'b'));
    EXPECT_EQ(cpu_millis(now, &before), std::nullopt);
    EXPECT_EQ(to_json(now, nullptr)["cpu_millis"], nullptr);
    EXPECT_EQ(to_json(now, nullptr)["memory_limit"], nullptr);
}

}  // namespace
}  // namespace sandbox::supervisor
