// SPDX-License-Identifier: Apache-2.0
#include "shim/keeper.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "../resolve/world.hpp"
#include "shim/reception.hpp"
#include "support.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::shim {
namespace {

using ledger::ExitReason;
using test::TempDir;

sys::Deadline in_time() { return sys::Deadline::after(Millis{10'000}); }

// One end of a packet conversation with the shim.
class Peer {
public:
    explicit Peer(sys::UniqueFd fd) : fd_(std::move(fd)) {}

    // Nothing at the end of the connection, or when nothing came in time.
    std::optional<Reply> hear()
    {
        if (sys::poll_one(fd_.get(), POLLIN, in_time()).value_or(0) == 0) return std::nullopt;
        auto packet = sys::recv_fds(fd_.get(), kMostPacketBytes, 0);
        if (!packet || packet->bytes.empty()) return std::nullopt;
        return VALUE(decode_control_reply(packet->bytes));
    }
    void say(std::string_view packet) { EXPECT_OK(sys::send_fds(fd_.get(), packet, {})); }
    void say(const Request& request) { say(encode(request).value()); }

private:
    sys::UniqueFd fd_;
};

// A running generation whose PID 1 is an idle child and whose sandbox-init is the test itself.
class Kept : public testing::Test {
protected:
    Kept() : ledger_(ledger::test::open(dir_))
    {
        generation_.request = test::request_below(dir_.path());
        sandbox_id_ = generation_.request.binding.id;
        EXPECT_OK(sys::make_dirs(run_dir()));
        auto transaction = VALUE(ledger_.begin());
        EXPECT_OK(transaction.insert(ledger::test::sandbox(1, "web")));
        EXPECT_EQ(VALUE(transaction.begin_generation(sandbox_id_)), 1U);
        const ledger::Moment now = VALUE(ledger::now());
        EXPECT_OK(transaction.claim({generation_.request.operation, sandbox_id_, "run", "digest",
                                     ledger::test::self(), "start", ledger::test::kFarFuture},
                                    now, [](const sys::ProcessIdentity&) { return true; }));
        EXPECT_OK(transaction.commit());
        child_ = fork();
        if (child_ == 0) {
            while (true) pause();
        }
        auto channel = VALUE(sys::socket_pair(sys::SocketType::seqpacket));
        init_ = std::move(channel.second);
        generation_.launched.emplace();
        generation_.launched->channel = std::move(channel.first);
        generation_.launched->init = VALUE(sys::Pidfd::open(child_));
        generation_.launched->init_pid = child_;
        auto session = VALUE(sys::socket_pair(sys::SocketType::stream));
        service_ = std::move(session.second);
        generation_.service = std::make_unique<SessionStream>(std::move(session.first));
        generation_.workload_pid = child_;
    }
    ~Kept() override
    {
        // Ends the loop of a test that failed half-way.
        service_.reset();
        if (thread_.joinable()) thread_.join();
        kill(child_, SIGKILL);
        waitpid(child_, nullptr, 0);
    }

    // Opens for business, then keeps in a thread of its own.
    void keep(std::optional<Millis> timeout = std::nullopt)
    {
        auto world = resolve::test::hello();
        world.profile.process.timeout = timeout;
        generation_.plan = resolve::test::planned(world);
        auto pair = VALUE(sys::socket_pair(sys::SocketType::seqpacket));
        launcher_.emplace(std::move(pair.first));
        journal_.emplace(VALUE(Journal::open(dir_.path())));
        journal_->bind(generation_.request);
        EXPECT_OK(journal_->running(ledger::test::self(),
                                    audit::Launched{.plan_digest = "sha256:" + std::string(64, 'a'),
                                                    .driver = "oci",
                                                    .isolation_class = "shared-kernel",
                                                    .shared_kernel_acknowledged = true,
                                                    .artifact_digest = "",
                                                    .bpf = {},
                                                    .artifacts = {},
                                                    .controls = {}}));
        keeper_.emplace(generation_, *journal_, std::move(pair.second));
        ASSERT_TRUE(ledger::test::succeeded(keeper_->open_for_business()));
        EXPECT_EQ(launcher_->hear(), Reply(Running{child_}));
        thread_ = std::thread([this] { ended_ = keeper_->keep(std::nullopt); });
    }
    std::string run_dir() const { return generation_.request.binding.run_dir.str(); }
    Peer connect()
    {
        return Peer(
            VALUE(sys::unix_connect(run_dir() + "/" + kSocketName, sys::SocketType::seqpacket)));
    }
    Peer greeted()
    {
        Peer peer = connect();
        EXPECT_EQ(peer.hear(), Reply(greeting(sandbox_id_.str())));
        return peer;
    }

    // sandbox-init's side of the service session.
    template <class M>
    void say_service(const M& message)
    {
        const auto frame = wire::encode(message).value();
        ASSERT_EQ(send(service_.get(), frame.data(), frame.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(frame.size()));
    }
    int signal_at_service()
    {
        std::array<std::byte, wire::kHeaderSize + 1> frame{};
        if (recv(service_.get(), frame.data(), frame.size(), MSG_WAITALL) != ssize_t{frame.size()})
            return -1;
        EXPECT_EQ(std::to_integer<int>(frame[4]), wire::Signal::kType);
        return std::to_integer<int>(frame[5]);
    }
    // What the kernel does when PID 1 is killed: everything of it closes.
    void await_death_of_init()
    {
        const auto init = VALUE(sys::Pidfd::open(child_));
        EXPECT_EQ(init.wait_ended(in_time()).value_or(false), true) << "PID 1 lives";
        service_.reset();
        init_.reset();
    }
    ledger::Exit finish()
    {
        thread_.join();
        const ledger::Exit exit = VALUE(std::move(*ended_));
        const auto row = VALUE(ledger_.find(sandbox_id_)).value();
        EXPECT_EQ(row.exit, exit);
        EXPECT_EQ(row.state, ledger::State::stopped);
        return exit;
    }

    TempDir dir_;
    ledger::Ledger ledger_;
    Generation generation_;
    SandboxId sandbox_id_;
    pid_t child_ = 0;
    sys::UniqueFd init_;
    sys::UniqueFd service_;
    std::optional<Peer> launcher_;
    std::optional<Journal> journal_;
    std::optional<Keeper> keeper_;
    std::optional<Result<ledger::Exit>> ended_;
    std::thread thread_;
};

TEST_F(Kept, RecordsTheExitAndTellsTheLauncher)
{
    keep();
    say_service(wire::Started{2});
    say_service(wire::Exit{wire::ExitOutcome::exited, 7});
    const auto exit = finish();
    EXPECT_EQ(exit,
              (ledger::Exit{.code = 7, .signal = 0, .reason = ExitReason::exited, .oom_kills = 0}));
    EXPECT_EQ(launcher_->hear(), Reply(Ended{exit, ""}));
    EXPECT_FALSE(launcher_->hear());
    // Whatever the workload left behind ends with it.
    await_death_of_init();
}

TEST_F(Kept, ReportsASignalAsAShellDoes)
{
    keep();
    say_service(wire::Exit{wire::ExitOutcome::signaled, SIGSEGV});
    EXPECT_EQ(finish(), (ledger::Exit{.code = 128 + SIGSEGV,
                                      .signal = SIGSEGV,
                                      .reason = ExitReason::signal,
                                      .oom_kills = 0}));
}

TEST_F(Kept, SaysWhyAProgramCouldNotBeExecuted)
{
    keep();
    say_service(wire::Exit{wire::ExitOutcome::failed_to_start, ENOENT});
    EXPECT_EQ(finish().code, 127);
    const auto told = launcher_->hear();
    ASSERT_TRUE(told);
    EXPECT_NE(std::get<Ended>(*told).why.find("/bin/true"), std::string::npos);
}

TEST_F(Kept, AnswersEveryClientThatWaits)
{
    keep();
    std::vector<Peer> waiting;
    for (int i = 0; i < 5; ++i) {
        waiting.push_back(greeted());
        waiting.back().say(WaitRequest{});
    }
    Peer idle = greeted();
    // An answer to a later packet proves that the earlier ones were served.
    for (Peer& peer : waiting) {
        peer.say(SignalRequest{SIGUSR1});
        EXPECT_EQ(peer.hear(), Reply(Accepted{}));
        EXPECT_EQ(signal_at_service(), SIGUSR1);
    }
    say_service(wire::Exit{wire::ExitOutcome::exited, 3});
    const auto exit = finish();
    for (Peer& peer : waiting) EXPECT_EQ(peer.hear(), Reply(Ended{exit, ""}));
    EXPECT_FALSE(idle.hear()) << "told without asking";
}

// Whoever is told may remove it, or read its log, the next moment.
TEST_F(Kept, TellsNobodyOfTheEndBeforeItIsRecordedAndTheLogDrained)
{
    sys::Pipe worker = VALUE(sys::make_pipe());
    generation_.log.emplace(
        LogWorker{VALUE(sys::Pidfd::open(getpid())), std::move(worker.read), {}});
    keep();
    Peer peer = greeted();
    say_service(wire::Exit{wire::ExitOutcome::exited, 3});
    await_death_of_init();
    peer.say(WaitRequest{});
    peer.say(SignalRequest{SIGUSR1});
    EXPECT_EQ(peer.hear(), Reply(Rejected{"the workload has ended"})) << "not the end of it";
    peer.say(SignalRequest{SIGKILL});
    EXPECT_EQ(peer.hear(), Reply(Accepted{}))
        << "it has what it asked for, and no policy undoes it";
    worker.write.reset();
    const auto exit = finish();
    EXPECT_EQ(peer.hear(), Reply(Ended{exit, ""}));
}

TEST_F(Kept, RejectsPacketsItDoesNotUnderstandAndServesOn)
{
    keep();
    Peer peer = greeted();
    for (const std::string& packet :
         {std::string("rubbish"), std::string(R"({"op":"exec"})"),
          std::string(R"({"op":"signal","signal":99})"), std::string(kMostPacketBytes, 'x'),
          std::string(kMostPacketBytes + 100, ' '), std::string("\0", 1)}) {
        peer.say(packet);
        const auto answer = peer.hear();
        ASSERT_TRUE(answer) << packet.substr(0, 40);
        EXPECT_TRUE(std::holds_alternative<Rejected>(*answer)) << packet.substr(0, 40);
    }
    peer.say(SignalRequest{SIGHUP});
    EXPECT_EQ(peer.hear(), Reply(Accepted{}));
    EXPECT_EQ(signal_at_service(), SIGHUP);
    say_service(wire::Exit{wire::ExitOutcome::exited, 0});
    finish();
}

TEST_F(Kept, StopsWithTermFirstAndKillsWhenTheTimeoutPasses)
{
    keep();
    Peer peer = greeted();
    peer.say(WaitRequest{});
    peer.say(StopRequest{20});
    EXPECT_EQ(peer.hear(), Reply(Accepted{}));
    EXPECT_EQ(signal_at_service(), SIGTERM);
    await_death_of_init();
    const auto exit = finish();
    EXPECT_EQ(exit.code, 137);
    EXPECT_EQ(exit.reason, ExitReason::killed);
    EXPECT_EQ(peer.hear(), Reply(Ended{exit, ""}));
}

TEST_F(Kept, KeepsTheWorkloadsOwnStatusWhenItHeedsAStop)
{
    keep();
    Peer peer = greeted();
    peer.say(StopRequest{60'000});
    EXPECT_EQ(signal_at_service(), SIGTERM);
    say_service(wire::Exit{wire::ExitOutcome::exited, 5});
    EXPECT_EQ(finish(),
              (ledger::Exit{.code = 5, .signal = 0, .reason = ExitReason::exited, .oom_kills = 0}));
}

TEST_F(Kept, KillsEverythingForSignal9)
{
    keep();
    Peer peer = greeted();
    peer.say(SignalRequest{SIGKILL});
    EXPECT_EQ(peer.hear(), Reply(Accepted{}));
    await_death_of_init();
    EXPECT_EQ(finish().reason, ExitReason::killed);
}

TEST_F(Kept, EndsATimedOutWorkloadWith124)
{
    keep(Millis{20});
    await_death_of_init();
    const auto exit = finish();
    EXPECT_EQ(exit.code, 124);
    EXPECT_EQ(exit.reason, ExitReason::timeout);
}

TEST_F(Kept, CallsTheEndOfAnInitThatVanishedUnknown)
{
    keep();
    kill(child_, SIGKILL);
    await_death_of_init();
    const auto exit = finish();
    EXPECT_EQ(exit.code, 137);
    EXPECT_EQ(exit.reason, ExitReason::unknown);
}

TEST_F(Kept, TakesAServiceSessionThatBreaksTheProtocolForLost)
{
    keep();
    ASSERT_EQ(send(service_.get(), "\xff\xff\xff\xff\xff", 5, MSG_NOSIGNAL), 5);
    EXPECT_EQ(finish().reason, ExitReason::unknown);
    await_death_of_init();
}

TEST_F(Kept, BoundsItsClientsAndServesThoseItHas)
{
    keep();
    std::vector<Peer> peers;
    for (int i = 0; i < 100; ++i) peers.push_back(connect());
    std::size_t taken = 0;
    for (Peer& peer : peers) taken += peer.hear() ? 1 : 0;
    EXPECT_EQ(taken, 63U);  // and the launcher
    peers.front().say(SignalRequest{SIGUSR2});
    EXPECT_EQ(peers.front().hear(), Reply(Accepted{}));
    EXPECT_EQ(signal_at_service(), SIGUSR2);
    // Room comes back when clients leave; the answer proves that their end was seen.
    peers.erase(peers.begin() + 1, peers.end());
    peers.front().say(SignalRequest{SIGUSR2});
    EXPECT_EQ(peers.front().hear(), Reply(Accepted{}));
    Peer late = connect();
    EXPECT_TRUE(late.hear());
    say_service(wire::Exit{wire::ExitOutcome::exited, 0});
    finish();
}

TEST_F(Kept, SurvivesAClientThatNeverReadsItsAnswers)
{
    keep();
    Peer deaf = connect();
    // Far more answers than a socket buffer holds.
    for (int i = 0; i < 2000; ++i) deaf.say("rubbish");
    Peer other = greeted();
    other.say(SignalRequest{SIGUSR1});
    EXPECT_EQ(other.hear(), Reply(Accepted{}));
    EXPECT_EQ(signal_at_service(), SIGUSR1);
    say_service(wire::Exit{wire::ExitOutcome::exited, 0});
    finish();
}

TEST_F(Kept, ClosesTheDoorWithoutAWordToWhatItDoesNotServe)
{
    keep();
    for (const char* line :
         {"CONNECT 5000\n", "CONNECT 1\n", "GET / HTTP/1.1\n", "CONNECT 4294967296\n"}) {
        const auto door = VALUE(
            sys::unix_connect(run_dir() + "/" + channel::kDoorName, sys::SocketType::stream));
        EXPECT_OK(sys::write_all(door.get(), line));
        std::array<std::byte, 8> answer{};
        EXPECT_EQ(channel::receive_bytes(door.get(), answer, in_time()).value_or(99), 0U) << line;
    }
    say_service(wire::Exit{wire::ExitOutcome::exited, 0});
    finish();
}

TEST_F(Kept, RefusesToPauseAGenerationThatIsNotThePresentOne)
{
    keep();
    Peer peer = greeted();
    for (const Request& request : {Request(PauseRequest{2}), Request(ResumeRequest{7})}) {
        peer.say(request);
        const auto reply = peer.hear();
        ASSERT_TRUE(reply && std::holds_alternative<Rejected>(*reply));
        EXPECT_NE(std::get<Rejected>(*reply).why.find("generation 1"), std::string::npos);
    }
    EXPECT_EQ(VALUE(ledger_.find(sandbox_id_))->state, ledger::State::running);
    // Nothing is frozen: to let it go on is nothing.
    peer.say(ResumeRequest{1});
    EXPECT_EQ(peer.hear(), Reply(Accepted{}));
    peer.say(TouchRequest{});
    EXPECT_EQ(peer.hear(), Reply(Accepted{}));
    say_service(wire::Exit{wire::ExitOutcome::exited, 0});
    finish();
}

TEST_F(Kept, KnowsThatAPersonEndedItHoweverItLeft)
{
    keep();
    Peer peer = greeted();
    peer.say(StopRequest{60'000});
    EXPECT_EQ(peer.hear(), Reply(Accepted{}));
    say_service(wire::Exit{wire::ExitOutcome::exited, 5});
    finish();
    EXPECT_EQ(keeper_->cause(), EndCause::asked);
}

TEST_F(Kept, KnowsThatASignalWhichIsNoEndLeftItToItself)
{
    keep();
    Peer peer = greeted();
    peer.say(SignalRequest{SIGUSR1});
    EXPECT_EQ(peer.hear(), Reply(Accepted{}));
    say_service(wire::Exit{wire::ExitOutcome::signaled, SIGUSR1});
    finish();
    EXPECT_EQ(keeper_->cause(), EndCause::workload);
}

TEST_F(Kept, KnowsThatItsTimeWasOver)
{
    keep(Millis{20});
    await_death_of_init();
    finish();
    EXPECT_EQ(keeper_->cause(), EndCause::timed_out);
    std::string all;
    for (const auto& queued : VALUE(ledger_.queued_audit())) all += queued.line;
    EXPECT_NE(all.find("process.timeout is 20ms"), std::string::npos);
}

TEST_F(Kept, PutsEveryActIntoTheAudit)
{
    keep();
    Peer peer = greeted();
    peer.say(SignalRequest{SIGUSR1});
    EXPECT_EQ(peer.hear(), Reply(Accepted{}));
    peer.say(StopRequest{60'000});
    EXPECT_EQ(peer.hear(), Reply(Accepted{}));
    say_service(wire::Exit{wire::ExitOutcome::exited, 0});
    finish();
    std::string all;
    for (const auto& queued : VALUE(ledger_.queued_audit())) all += queued.line;
    for (const char* verb : {"\"kill\"", "\"stop\"", "\"exited\""}) {
        EXPECT_NE(all.find(verb), std::string::npos) << verb;
    }
}

}  // namespace
}  // namespace sandbox::shim
