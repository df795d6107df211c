// SPDX-License-Identifier: Apache-2.0
// Between and beside generations: clocks, the pause before the next attempt, and the ledger's word.
#include <gtest/gtest.h>
#include <poll.h>

#include <csignal>
#include <thread>

#include "shim/journal.hpp"
#include "shim/limits.hpp"
#include "shim/reception.hpp"
#include "shim/restart_wait.hpp"
#include "support.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::shim {
namespace {

using ledger::EntryKind;
using ledger::State;
using test::TempDir;

profile::Lifecycle idle_for(std::optional<Millis> span)
{
    profile::Lifecycle lifecycle;
    lifecycle.idle_timeout = span;
    return lifecycle;
}

struct ClockRun {
    Loop loop;
    std::vector<EndCause> ends;
    bool busy = false;
    int asked = 0;
    std::unique_ptr<Clocks> clocks;

    void begin(std::optional<Millis> idle, sys::Deadline ttl)
    {
        clocks = std::make_unique<Clocks>(
            loop, idle_for(idle), ttl, [this] { return ++asked, busy; },
            [this](EndCause cause) {
                ends.push_back(cause);
                loop.stop();
            });
        EXPECT_OK(clocks->start());
    }
};

TEST(LifeClocks, EndWhatHasLivedLongEnough)
{
    ClockRun run;
    run.begin(std::nullopt, sys::Deadline::after(Millis{10}));
    run.loop.run();
    EXPECT_EQ(run.ends, std::vector{EndCause::ttl});
}

TEST(LifeClocks, EndWhatHasBeenIdleAndNothingThatIsBusy)
{
    ClockRun run;
    run.busy = true;
    run.begin(Millis{10}, sys::Deadline::never());
    EXPECT_OK(run.loop.after(Millis{60}, [&] { run.busy = false; }));
    const auto began = sys::boottime_ns();
    run.loop.run();
    EXPECT_EQ(run.ends, std::vector{EndCause::idle});
    EXPECT_GE(run.asked, 2);
    EXPECT_GE(sys::boottime_ns() - began, 60'000'000);
}

TEST(LifeClocks, ArePutOffByEveryTouch)
{
    constexpr int kTouches = 8;
    int touches = 0;
    // A busy machine may come too late for a touch: then there is more time for each.
    for (const int unit : {1, 10, 100}) {
        ClockRun run;
        run.begin(Millis{40 * unit}, sys::Deadline::never());
        touches = 0;
        std::function<void()> touch = [&] {
            run.clocks->touch();
            if (++touches < kTouches) {
                EXPECT_OK(run.loop.after(Millis{15 * unit}, touch));
            }
        };
        EXPECT_OK(run.loop.after(Millis{15 * unit}, touch));
        const auto began = sys::boottime_ns();
        run.loop.run();
        if (touches < kTouches) continue;
        // The last touch came after eight pauses, the end one idle time later.
        EXPECT_GE(sys::boottime_ns() - began, 160'000'000LL * unit);
        break;
    }
    EXPECT_EQ(touches, kTouches);
}

TEST(LifeClocks, StandStillWhileHeldButNotForTheEndOfLife)
{
    ClockRun run;
    run.begin(Millis{10}, sys::Deadline::after(Millis{60}));
    run.clocks->hold();
    run.loop.run();
    EXPECT_EQ(run.ends, std::vector{EndCause::ttl});
}

TEST(LifeClocks, AreSilentOnceStopped)
{
    ClockRun run;
    run.begin(Millis{10}, sys::Deadline::after(Millis{10}));
    run.clocks->stop();
    EXPECT_OK(run.loop.after(Millis{40}, [&] { run.loop.stop(); }));
    run.loop.run();
    EXPECT_TRUE(run.ends.empty());
}

constexpr ledger::Exit kThree{
    .code = 3, .signal = 0, .reason = ledger::ExitReason::exited, .oom_kills = 0};

class Waiting : public testing::Test {
protected:
    Waiting() : listener_(VALUE(listen_for_clients(dir_.path()))) {}

    // The outcome of a wait during which `clients` talk from a thread of their own.
    std::optional<EndCause> wait(Millis due, std::function<void()> clients = {},
                                 sys::Deadline ttl = sys::Deadline::never())
    {
        std::thread talk;
        if (clients) talk = std::thread(std::move(clients));
        RestartWait wait(listener_.get(), "id", kThree);
        const auto outcome = VALUE(wait.wait(sys::Deadline::after(due), ttl));
        if (talk.joinable()) talk.join();
        return outcome;
    }
    sys::UniqueFd connect()
    {
        auto socket = VALUE(
            sys::unix_connect(dir_.path() + "/" + kSocketName, sys::SocketType::seqpacket));
        EXPECT_EQ(hear(socket), Reply(greeting("id")));
        return socket;
    }
    static std::optional<Reply> hear(const sys::UniqueFd& socket)
    {
        const auto deadline = sys::Deadline::after(Millis{10'000});
        if (sys::poll_one(socket.get(), POLLIN, deadline).value_or(0) == 0) return std::nullopt;
        auto packet = sys::recv_fds(socket.get(), kMostPacketBytes, 0);
        if (!packet || packet->bytes.empty()) return std::nullopt;
        return VALUE(decode_control_reply(packet->bytes));
    }
    static std::optional<Reply> ask(const sys::UniqueFd& socket, const Request& request)
    {
        EXPECT_OK(sys::send_fds(socket.get(), VALUE(encode(request)), {}));
        return hear(socket);
    }

    TempDir dir_;
    sys::UniqueFd listener_;
};

constexpr Millis kLong{60'000};

TEST_F(Waiting, EndsWhenTheNextAttemptIsDue) { EXPECT_EQ(wait(Millis{5}), std::nullopt); }

TEST_F(Waiting, EndsWithTheSandboxesTime)
{
    EXPECT_EQ(wait(kLong, {}, sys::Deadline::after(Millis{5})), EndCause::ttl);
}

TEST_F(Waiting, EndsByAPersonsWord)
{
    for (const Request& end : {Request(StopRequest{1}), Request(SignalRequest{SIGKILL}),
                               Request(SignalRequest{SIGTERM}), Request(SignalRequest{SIGINT})}) {
        EXPECT_EQ(wait(kLong, [&] { EXPECT_EQ(ask(connect(), end), Reply(Accepted{})); }),
                  EndCause::asked);
    }
}

TEST_F(Waiting, AnswersWhatCanBeAnsweredAndRefusesTheRest)
{
    const auto outcome = wait(kLong, [this] {
        const auto socket = connect();
        EXPECT_EQ(ask(socket, WaitRequest{}), Reply(Ended{kThree, ""}));
        EXPECT_EQ(ask(socket, TouchRequest{}), Reply(Accepted{}));
        for (const Request& request : {Request(SignalRequest{SIGUSR1}), Request(PauseRequest{1}),
                                       Request(ResumeRequest{1})}) {
            const auto reply = ask(socket, request);
            ASSERT_TRUE(reply);
            EXPECT_TRUE(std::holds_alternative<Rejected>(*reply));
        }
        EXPECT_OK(sys::send_fds(socket.get(), "rubbish", {}));
        EXPECT_TRUE(std::holds_alternative<Rejected>(hear(socket).value()));
        // One that leaves without a word takes nobody along.
        connect().reset();
        EXPECT_EQ(ask(socket, StopRequest{0}), Reply(Accepted{}));
    });
    EXPECT_EQ(outcome, EndCause::asked);
}

TEST_F(Waiting, TakesOverASocketThatSomebodyLeftThere)
{
    listener_.reset();
    listener_ = VALUE(listen_for_clients(dir_.path()));
    EXPECT_EQ(wait(kLong, [this] { ask(connect(), StopRequest{0}); }), EndCause::asked);
}

// A sandbox that runs its first generation, in a real ledger.
class Series : public testing::Test {
protected:
    Series() : ledger_(ledger::test::open(dir_)), request_(test::request_below(dir_.path()))
    {
        auto transaction = VALUE(ledger_.begin());
        EXPECT_OK(transaction.insert(ledger::test::sandbox(1, "web")));
        EXPECT_EQ(VALUE(transaction.begin_generation(id())), 1U);
        EXPECT_OK(transaction.set_shim(id(), ledger::test::self()));
        const ledger::Moment now = VALUE(ledger::now());
        EXPECT_OK(transaction.claim({request_.operation, id(), "run", "digest",
                                     ledger::test::self(), "start", ledger::test::kFarFuture},
                                    now, [](const sys::ProcessIdentity&) { return true; }));
        const std::vector<ledger::Intent> intents{
            {EntryKind::shim_process, "shim:" + id().str()},
            {EntryKind::state_dir, "sandboxes/" + id().str()},
            {EntryKind::log_files, "sandboxes/" + id().str() + "/logs"},
            {EntryKind::run_dir, id().str()},
            {EntryKind::log_worker, "log:" + id().str()},
            {EntryKind::door_socket, id().str() + "/v.sock"},
            {EntryKind::shim_socket, id().str() + "/shim.sock"}};
        std::uint64_t seq = VALUE(transaction.intend(id(), intents));
        EXPECT_OK(transaction.commit());
        for (const auto& intent : intents) {
            request_.intents.push_back(
                {seq++, std::string(ledger::to_string(intent.kind)), intent.name});
        }
        journal_.emplace(VALUE(Journal::open(dir_.path())));
        journal_->bind(request_);
        EXPECT_OK(journal_->running(ledger::test::self(), launched()));
        EXPECT_OK(journal_->ended(kThree, {}));
    }

    static audit::Launched launched()
    {
        audit::Launched event;
        event.plan_digest = "sha256:" + std::string(64, 'a');
        event.driver = "oci";
        event.isolation_class = "shared-kernel";
        return event;
    }
    SandboxId id() const { return ledger::test::id(1); }
    ledger::Sandbox row() { return VALUE(ledger_.find(id())).value(); }
    driver::Unwound all_gone() { return {VALUE(journal_->open_entries_of_run()), {}, {}}; }
    Status between(std::int64_t due = 1'000'000'000)
    {
        return journal_->between(all_gone(), State::stopped, {1, 5, 400, "exit status 3"}, due);
    }
    std::string queued()
    {
        std::string all;
        for (const auto& line : VALUE(ledger_.queued_audit())) all += line.line;
        return all;
    }

    TempDir dir_;
    ledger::Ledger ledger_;
    LaunchRequest request_;
    std::optional<Journal> journal_;
};

TEST_F(Series, KeepsWhatTheShimIsReachedByAndWhatRests)
{
    std::vector<EntryKind> kinds;
    for (const auto& entry : VALUE(journal_->open_entries_of_run())) kinds.push_back(entry.kind);
    EXPECT_EQ(kinds, (std::vector{EntryKind::log_worker, EntryKind::door_socket}));
}

TEST_F(Series, WaitsUnderAClaimThatTellsWhenItGoesOn)
{
    EXPECT_OK(between(7'000'000'000));
    EXPECT_EQ(row().state, State::stopped);
    EXPECT_EQ(row().exit, kThree);
    const auto claim = VALUE(ledger_.claim_of(id()));
    ASSERT_TRUE(claim);
    EXPECT_EQ(claim->verb, kRestartVerb);
    EXPECT_EQ(claim->deadline_ns - kRestartGraceNs, 7'000'000'000U);
    EXPECT_EQ(claim->step, "attempt 1 of 5 after exit status 3");
    EXPECT_TRUE(VALUE(journal_->open_entries_of_run()).empty());
    EXPECT_NE(queued().find("\"restarting\""), std::string::npos);
}

TEST_F(Series, BeginsTheNextGenerationWithFreshIntents)
{
    EXPECT_OK(between());
    EXPECT_OK(journal_->begin_again(request_));
    EXPECT_EQ(row().state, State::prepared);
    EXPECT_EQ(row().generation, 2U);
    EXPECT_FALSE(row().exit);
    EXPECT_EQ(row().shim, ledger::test::self());
    EXPECT_EQ(request_.binding.generation, 2U);
    ASSERT_EQ(request_.intents.size(), 2U);
    EXPECT_EQ(request_.intents[0].kind, "log_worker");
    EXPECT_EQ(request_.intents[1].kind, "door_socket");
    EXPECT_OK(journal_->running(ledger::test::self(), launched()));
    EXPECT_FALSE(VALUE(ledger_.claim_of(id())));
    EXPECT_OK(journal_->ended(kThree, {}));
    EXPECT_FALSE(journal_->ended(kThree, {})) << "its exit was told twice";
    EXPECT_OK(between());
}

TEST_F(Series, TriesAgainAfterALaunchThatFailed)
{
    EXPECT_OK(between());
    EXPECT_OK(journal_->begin_again(request_));
    EXPECT_OK(journal_->failed({"sha256:" + std::string(64, 'a'), "crun", "why", {}}));
    EXPECT_OK(journal_->between(all_gone(), State::failed, {2, {}, 800, "launch-failed"}, 1));
    EXPECT_EQ(row().state, State::failed);
    EXPECT_OK(journal_->begin_again(request_));
    EXPECT_EQ(row().generation, 3U);
    EXPECT_EQ(row().state, State::prepared);
}

TEST_F(Series, RestsWhenThePauseEndsOtherwise)
{
    EXPECT_OK(between());
    EXPECT_OK(journal_->give_up_restart());
    EXPECT_FALSE(VALUE(ledger_.claim_of(id())));
    EXPECT_OK(journal_->cleaned({VALUE(journal_->open_entries()), {}, {}}, State::stopped));
    EXPECT_EQ(row().state, State::stopped);
    EXPECT_TRUE(ledger::rests(row()));
}

TEST_F(Series, NeverBeginsWithoutItsClaim)
{
    EXPECT_OK(between());
    auto transaction = VALUE(ledger_.begin());
    const auto claim = VALUE(ledger_.claim_of(id()));
    EXPECT_OK(transaction.finish(claim->operation, ledger::test::self(), "{}"));
    EXPECT_OK(transaction.commit());
    EXPECT_FALSE(journal_->begin_again(request_)) << "somebody took it over";
    EXPECT_EQ(row().generation, 1U);
}

}  // namespace
}  // namespace sandbox::shim
