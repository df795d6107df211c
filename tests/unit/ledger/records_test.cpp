// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <set>

#include "ledger/codec.hpp"
#include "support.hpp"

namespace sandbox::ledger::test {
namespace {

constexpr std::array kAllStates{State::requested, State::resolved, State::prepared, State::created,
                                State::running,   State::paused,   State::stopped,  State::failed,
                                State::dead,      State::deleted};

TEST(LedgerStates, AllowExactlyTheListedTransitions)
{
    const std::set<std::string> legal{
        "requested>resolved", "requested>failed", "requested>dead",   "resolved>prepared",
        "resolved>failed",    "resolved>dead",    "prepared>created", "prepared>failed",
        "prepared>dead",      "created>running",  "created>stopped",  "created>failed",
        "created>dead",       "running>paused",   "running>stopped",  "running>dead",
        "paused>running",     "paused>stopped",   "paused>dead",      "stopped>resolved",
        "stopped>prepared",   "failed>resolved",  "failed>prepared",  "dead>resolved",
        "dead>prepared",      "created>prepared"};
    for (const State from : kAllStates) {
        for (const State to : kAllStates) {
            const std::string name = std::string(to_string(from)) + ">" +
                                     std::string(to_string(to));
            const bool expected = to == State::deleted ? from != State::deleted
                                                       : legal.contains(name);
            EXPECT_EQ(may_become(from, to), expected) << name;
        }
    }
}

TEST(LedgerStates, CanBeRemovedFromEveryState)
{
    for (const State from : kAllStates) {
        EXPECT_EQ(may_become(from, State::deleted), from != State::deleted);
    }
}

TEST(LedgerStates, RestWhereNothingRunsAndAStartIsLegal)
{
    for (const State state : kAllStates) {
        Sandbox resting;
        resting.state = state;
        const bool startable = state == State::created || state == State::stopped ||
                               state == State::failed || state == State::dead;
        EXPECT_EQ(rests(resting), startable) << to_string(state);
        EXPECT_TRUE(!rests(resting) || may_become(state, State::prepared)) << to_string(state);
    }
    // On its way to run: its shim has it.
    Sandbox launching;
    launching.state = State::created;
    launching.shim = self();
    EXPECT_FALSE(rests(launching));
}

TEST(LedgerWords, RoundTripAndRefuseUnknownOnes)
{
    for (const State state : kAllStates) EXPECT_EQ(parse_state(to_string(state)), state);
    for (int i = 0; i <= static_cast<int>(EntryKind::log_files); ++i) {
        const auto kind = static_cast<EntryKind>(i);
        EXPECT_EQ(parse_entry_kind(to_string(kind)), kind);
    }
    EXPECT_EQ(parse_state("Running"), std::nullopt);
    EXPECT_EQ(parse_entry_kind(""), std::nullopt);
    EXPECT_EQ(parse_exit_reason("oom_kill"), std::nullopt);
}

TEST(LedgerIds, AreThirtyTwoLowerCaseHexDigits)
{
    EXPECT_TRUE(is_sandbox_id("0123456789abcdef0123456789abcdef"));
    EXPECT_FALSE(is_sandbox_id("0123456789abcdef0123456789abcde"));
    EXPECT_FALSE(is_sandbox_id("0123456789ABCDEF0123456789abcdef"));
    EXPECT_FALSE(is_sandbox_id("../3456789abcdef0123456789abcdef"));
    EXPECT_TRUE(is_sandbox_id(VALUE(new_sandbox_id()).str()));
    const auto first = VALUE(new_sandbox_id());
    EXPECT_NE(first, VALUE(new_sandbox_id()));
}

TEST(LedgerIdentity, RoundTripsTheLargestNumbers)
{
    const ProcessIdentity process{4194304, UINT64_MAX, "b1b2", UINT64_MAX};
    EXPECT_EQ(VALUE(decode_process(encode(process))), process);
    const FileIdentity file{UINT64_MAX, UINT64_MAX};
    EXPECT_EQ(VALUE(decode_file(encode(file))), file);
    const IdRange range{UINT32_MAX, 65536};
    EXPECT_EQ(VALUE(decode_range(encode(range))), range);
}

TEST(LedgerIdentity, RefusesWhatItDidNotWrite)
{
    for (const auto* text :
         {"", "{}", "[]", "null", R"({"boot_id":"b","pid":1,"start_time":"1"})",
          R"({"boot_id":1,"pid":1,"pidfd_inode":"1","start_time":"1"})",
          R"({"boot_id":"b","pid":1,"pidfd_inode":"-1","start_time":"1"})",
          R"({"boot_id":"b","pid":99999999999,"pidfd_inode":"1","start_time":"1"})",
          R"({"boot_id":"b","pid":1,"pidfd_inode":"1x","start_time":"1"})"}) {
        EXPECT_CODE(decode_process(text), Code::corrupt);
    }
    EXPECT_CODE(decode_range(R"({"count":-1,"first":0})"), Code::corrupt);
}

Sandbox full()
{
    Sandbox s = sandbox(7, "web");
    s.state = State::stopped;
    s.desired = Desired::stopped;
    s.generation = 3;
    s.shim = ProcessIdentity{1, 2, "b", 3};
    s.pid1 = ProcessIdentity{4, 5, "b", 0};
    s.ids = IdRange{100000, 65536};
    s.remove_on_exit = RemoveOnExit::yes;
    s.exit = Exit{137, 9, ExitReason::oom, 2};
    s.exit_delivered = true;
    return s;
}

TEST(LedgerCodec, RoundTripsEveryField)
{
    EXPECT_EQ(VALUE(sandbox_from(to_row(full()))), full());
    const Entry entry{id(1), 9, 2, EntryKind::cgroup_session, "/sandbox/x", EntryState::observed,
                      "{}"};
    EXPECT_EQ(VALUE(entry_from(to_row(entry))), entry);
    const Claim claim{"op", id(1), "run", "d", {1, 2, "b", 3}, "step", 5, OperationState::lost,
                      "{}"};
    EXPECT_EQ(VALUE(claim_from(to_row(claim))), claim);
}

TEST(LedgerCodec, RefusesARowWithAnyColumnOfTheWrongTypeOrMissing)
{
    const Row good = to_row(full());
    for (std::size_t i = 0; i < good.size(); ++i) {
        Row wrong = good;
        if (std::holds_alternative<std::int64_t>(wrong[i]))
            wrong[i] = std::string("1");
        else
            wrong[i] = std::int64_t{1};
        EXPECT_CODE(sandbox_from(wrong), Code::corrupt) << columns_of(Table::sandbox)[i];
        EXPECT_CODE(sandbox_from(Row(good.begin(), good.begin() + static_cast<long>(i))),
                    Code::corrupt);
    }
    Row longer = good;
    longer.emplace_back(std::int64_t{0});
    EXPECT_CODE(sandbox_from(longer), Code::corrupt);
}

TEST(LedgerCodec, ChecksumSeesEveryChangeOfEveryColumn)
{
    const Row values = to_row(full());
    const std::string sum = row_sum(Table::sandbox, values);
    EXPECT_EQ(sum.size(), 16U);
    EXPECT_NE(sum, row_sum(Table::entry, values));
    for (std::size_t i = 0; i < values.size(); ++i) {
        Row changed = values;
        if (auto* number = std::get_if<std::int64_t>(&changed[i]))
            ++*number;
        else
            std::get<std::string>(changed[i]) += 'x';
        EXPECT_NE(row_sum(Table::sandbox, changed), sum) << columns_of(Table::sandbox)[i];
    }
    Row stored = values;
    stored.emplace_back(sum);
    EXPECT_EQ(VALUE(checked(Table::sandbox, stored)), values);
    std::get<std::string>(stored[1]) = "wed";
    EXPECT_CODE(checked(Table::sandbox, stored), Code::corrupt);
}

TEST(LedgerCodec, ChecksumDoesNotConfuseWhereOneColumnEnds)
{
    EXPECT_NE(row_sum(Table::meta, Row{std::string("ab"), std::string("c")}),
              row_sum(Table::meta, Row{std::string("a"), std::string("bc")}));
    EXPECT_NE(row_sum(Table::meta, Row{std::string("a;t1:b"), std::string("")}),
              row_sum(Table::meta, Row{std::string("a"), std::string("b")}));
}

}  // namespace
}  // namespace sandbox::ledger::test
