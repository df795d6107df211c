// SPDX-License-Identifier: Apache-2.0
#include "control/codec.hpp"

#include <gtest/gtest.h>

#include "canon/json.hpp"
#include "control/fields.hpp"
#include "control/metrics.hpp"

namespace sandbox::control {
namespace {

const ledger::Exit kExit{137, 9, ledger::ExitReason::oom, 2};

TEST(ApiCodec, ErrorsKeepTheirCodeAndMessage)
{
    const Error error = error_from_json(to_json(Error(Code::conflict, "taken").with("run")));
    EXPECT_EQ(error.code(), Code::conflict);
    EXPECT_EQ(error.message(), "run: taken");
    EXPECT_EQ(error_from_json(canon::Json::array()).code(), Code::corrupt);
}

TEST(ApiCodec, ResultsRoundTrip)
{
    supervisor::RunResult run;
    run.id = SandboxId("a");
    run.name = SandboxName("n");
    run.exit = kExit;
    run.exit_status = 137;
    run.why = "why";
    const auto run_back = run_result_from_json(to_json(run));
    ASSERT_TRUE(run_back.has_value());
    EXPECT_EQ(to_json(*run_back), to_json(run));
    EXPECT_EQ(run_back->exit, run.exit);

    supervisor::SessionResult session{"s1", std::nullopt, 3, "w", 10, 20};
    EXPECT_EQ(to_json(session_result_from_json(to_json(session)).value()), to_json(session));
    supervisor::SessionInfo info;
    info.session = "s2";
    info.argv = {"a", "b"};
    info.terminal = info.running = true;
    info.pid = 7;
    info.exit = kExit;
    EXPECT_EQ(to_json(session_info_from_json(to_json(info)).value()), to_json(info));
    supervisor::Stats stats;
    stats.id = SandboxId("i");
    stats.memory_bytes = 1U << 30;
    stats.pids_limit = 5;
    stats.cpu_ns = 123456789012;
    EXPECT_EQ(to_json(stats_from_json(to_json(stats)).value()), to_json(stats));
    EXPECT_EQ(to_json(copy_result_from_json(to_json(supervisor::CopyResult{2, 3})).value()),
              to_json(supervisor::CopyResult{2, 3}));
}

TEST(ApiCodec, ReportsRoundTrip)
{
    supervisor::Report report;
    report.sandboxes = 3;
    report.found = {{SandboxId("a"), "what", "why"}};
    report.now_resting = {{SandboxId("b"), "dead", ""}};
    EXPECT_EQ(to_json(report_from_json(to_json(report)).value()), to_json(report));
}

TEST(ApiCodec, RefusalsRoundTrip)
{
    const std::vector<resolve::Denial> denials{
        {resolve::DenialClass::policy_denied, "r", "k", "q", "f", "m", {"file", 3, 4}}};
    EXPECT_EQ(denials_from_json(resolve::to_json(denials)).value(), denials);
    const std::vector<Diagnostic> diagnostics{{"c", "k", {"f", 1, 2}, "m", "h"}};
    EXPECT_EQ(diagnostics_from_json(to_json(diagnostics)).value(), diagnostics);
    EXPECT_FALSE(denials_from_json({{"denials", {{{"class", "NEW_CLASS"}}}}}).has_value());
}

TEST(ApiCodec, ListedSandboxesRoundTripWithDetail)
{
    supervisor::Listed listed;
    listed.sandbox.id = SandboxId(std::string(32, 'a'));
    listed.sandbox.name = SandboxName("n");
    listed.sandbox.state = ledger::State::running;
    listed.sandbox.generation = 4;
    listed.sandbox.labels = R"({"a":"b"})";
    listed.sandbox.exit = kExit;
    listed.shim_alive = false;
    const auto back = listed_from_json(to_json(listed, true));
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(to_json(*back, true), to_json(listed, true));
    EXPECT_EQ(to_json(*back, false).at("state"), "dead");
    EXPECT_FALSE(listed_from_json(to_json(listed, false)).has_value());
}

TEST(ApiCodec, ApplyResultsRoundTrip)
{
    supervisor::Applied item;
    item.action = supervisor::Applied::Action::replace;
    item.name = "web";
    item.source = "/f";
    item.changes = {{"process.argv", "a", "b", profile::ChangeClass::replace}};
    item.pending = {{"host", "x", "y", profile::ChangeClass::next_start}};
    item.failure = "no";
    const supervisor::ApplyResult result{{item}};
    EXPECT_EQ(to_json(apply_result_from_json(to_json(result)).value()), to_json(result));
    EXPECT_FALSE(apply_result_from_json({{"items", {{{"action", "explode"}}}}}).has_value());
}

TEST(ApiCodec, VerdictsRoundTrip)
{
    Verdict verdict;
    verdict.head.seq = 9;
    verdict.broken = audit::Broken{3, "cut"};
    const auto back = verdict_from_json(to_json(verdict)).value();
    EXPECT_EQ(back.head, verdict.head);
    EXPECT_EQ(back.broken, verdict.broken);
}

TEST(Fields, KeepTheFirstMistake)
{
    const canon::Json json{{"a", 1}, {"b", "x"}, {"c", -1}};
    Fields fields(json, "thing");
    EXPECT_FALSE(fields.text("a").has_value());
    EXPECT_FALSE(fields.count("c").has_value());
    EXPECT_EQ(fields.text("b"), "x");
    const auto end = fields.finish();
    ASSERT_FALSE(end.has_value());
    EXPECT_NE(end.error().message().find("a wants a string"), std::string::npos);
}

TEST(Fields, RefuseMembersThatNobodyAskedFor)
{
    const canon::Json json{{"a", nullptr}, {"b", 1}};
    Fields strict(json, "thing");
    EXPECT_FALSE(strict.text("a").has_value());
    EXPECT_FALSE(strict.finish().has_value());
    Fields mild(json, "thing");
    mild.ignore_the_rest();
    EXPECT_TRUE(mild.finish().has_value());
    EXPECT_FALSE(Fields(canon::Json::array(), "thing").finish().has_value());
}

TEST(Metrics, CountWhatAnswersTell)
{
    Counters counters;
    Call run;
    run.operation = Operation::run;
    counters.count_answer(run, 201, "{}");
    counters.count_answer(run, 500, "{}");
    counters.count_answer(
        run, 422,
        resolve::to_json({{resolve::DenialClass::policy_denied, "", "", "", "", "", {}}}).dump());
    EXPECT_EQ(counters.launches, 1U);
    EXPECT_EQ(counters.launches_failed, 1U);
    EXPECT_EQ(counters.denials.at("POLICY_DENIED"), 1U);
    counters.reconciles = 2;
    counters.reconcile_ns = 1'050'000'000;
    const std::string text = render_metrics(counters, {});
    EXPECT_NE(text.find("sandbox_launches_total 1\n"), std::string::npos);
    EXPECT_NE(text.find("sandbox_reconcile_duration_seconds_sum 1.050000000\n"), std::string::npos);
    EXPECT_NE(text.find("sandbox_sandboxes{state=\"running\"} 0\n"), std::string::npos);
    EXPECT_NE(text.find("sandbox_api_requests_total{operation=\"run\",code=\"422\"} 1\n"),
              std::string::npos);
}

}  // namespace
}  // namespace sandbox::control
