// SPDX-License-Identifier: Apache-2.0
#include "shim/restart.hpp"

#include <gtest/gtest.h>

#include "shim/health.hpp"

namespace sandbox::shim {
namespace {

using profile::RestartPolicy;

profile::Lifecycle lifecycle(RestartPolicy policy, Millis backoff = Millis{100},
                             std::optional<std::uint32_t> most = std::nullopt)
{
    profile::Lifecycle asked;
    asked.restart = policy;
    asked.backoff = backoff;
    asked.max_restarts = most;
    return asked;
}

RunEnd ended(EndCause cause, std::int32_t code = 1, Millis ran = Millis{5})
{
    return {cause, code, ran};
}

TEST(RestartPolicies, StartAgainAsTheirTableSays)
{
    struct Case {
        EndCause cause;
        std::int32_t code;
        bool on_failure;
        bool always;
    };
    // Unhealthy and 0: it left well when asked to, and unhealthy it was all the same.
    for (const Case& c :
         {Case{EndCause::workload, 0, false, true}, Case{EndCause::workload, 1, true, true},
          Case{EndCause::workload, 137, true, true},  // out of memory
          Case{EndCause::timed_out, 124, true, true}, Case{EndCause::unhealthy, 143, true, true},
          Case{EndCause::unhealthy, 0, true, true}, Case{EndCause::launch_failed, 125, true, true},
          Case{EndCause::asked, 143, false, false}, Case{EndCause::asked, 0, false, false},
          Case{EndCause::ttl, 143, false, false}, Case{EndCause::idle, 0, false, false}}) {
        const RunEnd end = ended(c.cause, c.code);
        const std::string what = std::string(to_string(c.cause)) + " " + std::to_string(c.code);
        EXPECT_FALSE(next_restart(lifecycle(RestartPolicy::no), {}, end)) << what;
        EXPECT_EQ(next_restart(lifecycle(RestartPolicy::on_failure), {}, end).has_value(),
                  c.on_failure)
            << what;
        EXPECT_EQ(next_restart(lifecycle(RestartPolicy::always), {}, end).has_value(), c.always)
            << what;
    }
}

TEST(RestartBackoff, DoublesUpToItsCap)
{
    const auto asked = lifecycle(RestartPolicy::always, Millis{10'000});
    Attempts so_far;
    std::vector<std::int64_t> delays;
    for (int i = 0; i < 6; ++i) {
        const auto next = next_restart(asked, so_far, ended(EndCause::workload));
        ASSERT_TRUE(next);
        delays.push_back(next->delay.count());
        so_far = next->attempts;
    }
    EXPECT_EQ(delays, (std::vector<std::int64_t>{10'000, 20'000, 40'000, 60'000, 60'000, 60'000}));
    EXPECT_EQ(so_far.in_a_row, 6U);
}

TEST(RestartBackoff, KeepsAFirstPauseThatIsLongerThanTheCap)
{
    const auto asked = lifecycle(RestartPolicy::always, Millis{90'000});
    const auto first = next_restart(asked, {}, ended(EndCause::workload));
    const auto second = next_restart(asked, first->attempts, ended(EndCause::workload));
    EXPECT_EQ(first->delay, Millis{90'000});
    EXPECT_EQ(second->delay, Millis{90'000});
}

TEST(RestartBackoff, BeginsAnewAfterAHealthyRun)
{
    const auto asked = lifecycle(RestartPolicy::always, Millis{100}, 3);
    const Attempts worn{3, Millis{400}};
    EXPECT_FALSE(next_restart(asked, worn, ended(EndCause::workload, 1, Millis{999})));
    EXPECT_EQ(next_restart(asked, worn, ended(EndCause::workload, 1, Millis{1000})),
              (Restart{Millis{100}, {1, Millis{100}}}));
    // Sixty seconds are enough whatever the pause.
    const auto slow = lifecycle(RestartPolicy::always, Millis{30'000}, 3);
    EXPECT_FALSE(next_restart(slow, worn, ended(EndCause::workload, 1, Millis{59'999})));
    EXPECT_TRUE(next_restart(slow, worn, ended(EndCause::workload, 1, Millis{60'000})));
    // However long it was unhealthy, that was no healthy run.
    EXPECT_FALSE(next_restart(asked, worn, ended(EndCause::unhealthy, 1, Millis{90'000})));
}

TEST(RestartBackoff, StaysDownAfterItsCapOfRestarts)
{
    const auto asked = lifecycle(RestartPolicy::on_failure, Millis{1}, 2);
    Attempts so_far;
    for (std::uint32_t i = 1; i <= 2; ++i) {
        const auto next = next_restart(asked, so_far, ended(EndCause::workload));
        ASSERT_TRUE(next) << i;
        EXPECT_EQ(next->attempts.in_a_row, i);
        so_far = next->attempts;
    }
    EXPECT_FALSE(next_restart(asked, so_far, ended(EndCause::workload)));
    EXPECT_FALSE(next_restart(lifecycle(RestartPolicy::always, Millis{1}, 0), {},
                              ended(EndCause::workload)));
}

TEST(HealthRecords, AreStartingUntilTheFirstVerdict)
{
    HealthRecord record(3);
    EXPECT_EQ(record.health(), Health::starting);
    EXPECT_FALSE(record.failed("exit status 1"));
    EXPECT_FALSE(record.failed("exit status 1"));
    EXPECT_EQ(record.health(), Health::starting);
    EXPECT_EQ(record.failed("exit status 2"), Health::unhealthy);
    EXPECT_EQ(record.detail(), "exit status 2");
    EXPECT_FALSE(record.failed("exit status 2")) << "told again";
    EXPECT_EQ(record.failures(), 4U);
}

TEST(HealthRecords, CountOnlyFailuresInARow)
{
    HealthRecord record(2);
    EXPECT_EQ(record.passed(), Health::healthy);
    for (int i = 0; i < 5; ++i) {
        EXPECT_FALSE(record.failed("x"));
        EXPECT_FALSE(record.passed());
    }
    EXPECT_EQ(record.detail(), "");
    EXPECT_FALSE(record.failed("x"));
    EXPECT_EQ(record.failed("x"), Health::unhealthy);
    EXPECT_EQ(record.passed(), Health::healthy);
    EXPECT_EQ(record.failures(), 0U);
}

TEST(HealthRecords, WithOneRetryFailAtOnce)
{
    HealthRecord record(1);
    EXPECT_EQ(record.failed("x"), Health::unhealthy);
}

}  // namespace
}  // namespace sandbox::shim
