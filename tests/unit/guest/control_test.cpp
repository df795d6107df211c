// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <random>

#include "init_fixture.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::guest::test {
namespace {

std::uint16_t code(wire::WireError error) { return static_cast<std::uint16_t>(error); }

class GuestControl : public InitTest {};

}  // namespace

TEST_F(GuestControl, GreetsAndTellsWhatItKnows)
{
    start(record());
    Peer control = stream(wire::Port::control, "");
    control.send(wire::Hello{});
    const auto welcome = control.control<wire::Welcome>();
    ASSERT_TRUE(welcome);
    EXPECT_FALSE(welcome->provisioned);
    EXPECT_FALSE(welcome->kernel_release.empty());
    control.send(wire::StatsRequest{});
    const auto stats = control.control<wire::Stats>();
    ASSERT_TRUE(stats);
    EXPECT_GT(stats->mem_total_kib, 0U);
    EXPECT_GT(stats->cpu_count, 0U);
}

TEST_F(GuestControl, OpensNoSessionBeforeReady)
{
    start(record());
    Ran ran = run_shell("echo ran");
    ASSERT_TRUE(ran.error);
    EXPECT_EQ(ran.error->code, code(wire::WireError::not_provisioned));
    Peer control = stream(wire::Port::control, "");
    control.send(wire::Hello{});
    ASSERT_TRUE(control.control<wire::Welcome>());
    control.send(wire::Provision{});
    ASSERT_TRUE(control.control<wire::Provisioned>());
    ran = run_shell("echo ran");
    ASSERT_TRUE(ran.error);
    EXPECT_EQ(ran.error->code, code(wire::WireError::not_ready));
    control.send(wire::Ready{1});
    ASSERT_TRUE(control.control<wire::ReadyAck>());
    EXPECT_EQ(run_shell("echo ran").out, "ran\n");
}

TEST_F(GuestControl, RefusesReadyBeforeProvisionAndASecondProvision)
{
    start(record());
    Peer early = stream(wire::Port::control, "");
    early.send(wire::Hello{});
    ASSERT_TRUE(early.control<wire::Welcome>());
    early.send(wire::Ready{1});
    auto error = early.control<wire::ErrorMessage>();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, code(wire::WireError::not_provisioned));
    Peer control = stream(wire::Port::control, "");
    ASSERT_EQ(bring_up(control), "");
    control.send(wire::Provision{});
    error = control.control<wire::ErrorMessage>();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, code(wire::WireError::type_not_allowed));
    Peer again = stream(wire::Port::control, "");
    again.send(wire::Hello{.resume = true});
    const auto welcome = again.control<wire::Welcome>();
    ASSERT_TRUE(welcome);
    EXPECT_TRUE(welcome->provisioned) << "what was provisioned outlives the connection";
}

TEST_F(GuestControl, RefusesSecretsItCannotDeliver)
{
    start(record());
    Peer control = stream(wire::Port::control, "");
    control.send(wire::Hello{});
    ASSERT_TRUE(control.control<wire::Welcome>());
    wire::Provision provision;
    provision.provider_keys = {{"binding", "API_KEY", "value"}};
    control.send(provision);
    const auto error = control.control<wire::ErrorMessage>();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, code(wire::WireError::refused));
}

TEST_F(GuestControl, RotatesOnlyWhatThereIs)
{
    start_ready();
    control_->send(wire::Rotate{wire::RotateKind::event_nonce, "", wire::ByteVector(32)});
    const auto rotated = control_->control<wire::Rotated>();
    ASSERT_TRUE(rotated);
    EXPECT_EQ(rotated->kind, wire::RotateKind::event_nonce);
    control_->send(wire::Rotate{wire::RotateKind::provider_key, "unknown", wire::ByteVector(3)});
    const auto error = control_->control<wire::ErrorMessage>();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, code(wire::WireError::refused));
}

TEST_F(GuestControl, LeavesTheHostsClockAndDisksAlone)
{
    start_ready();
    control_->send(wire::TimeSet{1});
    auto error = control_->control<wire::ErrorMessage>();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, code(wire::WireError::refused));
    Peer control = stream(wire::Port::control, "");
    control.send(wire::Hello{});
    ASSERT_TRUE(control.control<wire::Welcome>());
    control.send(wire::Fstrim{});
    error = control.control<wire::ErrorMessage>();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, code(wire::WireError::refused));
    expect_serving();
}

TEST_F(GuestControl, SignalsASessionByItsName)
{
    start_ready();
    Peer session = stream(wire::Port::session, "s7");
    session.send(shell("exec sleep 1000"));
    ASSERT_TRUE(session.session<wire::Confined>());
    ASSERT_TRUE(session.session<wire::Started>());
    control_->send(wire::SignalSession{"s8", SIGTERM});
    auto answer = control_->control<wire::SessionSignaled>();
    ASSERT_TRUE(answer);
    EXPECT_FALSE(answer->found);
    control_->send(wire::SignalSession{"s7", SIGTERM});
    answer = control_->control<wire::SessionSignaled>();
    ASSERT_TRUE(answer);
    EXPECT_TRUE(answer->found);
    const auto exit = session.session<wire::Exit>();
    ASSERT_TRUE(exit);
    EXPECT_EQ(exit->outcome, wire::ExitOutcome::signaled);
    EXPECT_EQ(exit->value, SIGTERM);
}

TEST_F(GuestControl, PowersOffAfterSayingSo)
{
    start_ready();
    Peer session = stream(wire::Port::session);
    session.send(shell("sleep 1000"));
    ASSERT_TRUE(session.session<wire::Confined>());
    ASSERT_TRUE(session.session<wire::Started>());
    control_->send(wire::Poweroff{});
    EXPECT_TRUE(control_->control<wire::PoweroffAck>());
    EXPECT_TRUE(wait_gone());
}

TEST_F(GuestControl, GivesTermBeforeKillWhenThePlanGrantsTime)
{
    wire::Bootstrap boot = record();
    boot.stop_grace_ms = 20'000;
    start(boot);
    control_ = std::make_unique<Peer>(stream(wire::Port::control, ""));
    ASSERT_EQ(bring_up(*control_), "");
    Peer session = stream(wire::Port::session);
    session.send(shell("trap 'echo bye; exit 5' TERM; sleep 1000 & echo up; wait"));
    ASSERT_TRUE(session.session<wire::Confined>());
    ASSERT_TRUE(session.session<wire::Started>());
    ASSERT_TRUE(session.session<wire::Stdout>());
    control_->send(wire::Poweroff{});
    EXPECT_TRUE(control_->control<wire::PoweroffAck>());
    const Ran ran = collect(session);
    EXPECT_EQ(ran.out, "bye\n");
    EXPECT_EQ(ran.exit, (wire::Exit{wire::ExitOutcome::exited, 5}));
    EXPECT_TRUE(wait_gone());
}

TEST_F(GuestControl, EndsWithItsChannelAndTakesItsSessionsAlong)
{
    start_ready();
    Peer session = stream(wire::Port::session);
    session.send(shell("sleep 1000"));
    ASSERT_TRUE(session.session<wire::Confined>());
    const auto started = session.session<wire::Started>();
    ASSERT_TRUE(started);
    const auto pidfd = sys::Pidfd::open(static_cast<pid_t>(started->pid));
    ASSERT_TRUE(pidfd);
    channel_.reset();
    EXPECT_TRUE(wait_gone());
    EXPECT_TRUE(pidfd->wait_ended(sys::Deadline::after(Millis(20'000))).value_or(false));
}

TEST_F(GuestControl, AnswersBrokenFramesAndGoesOnServing)
{
    start_ready();
    struct Case {
        const char* name;
        wire::Port port;
        std::string bytes;
        wire::WireError error;
    };
    using namespace std::string_literals;
    const Case cases[] = {
        {"unknown type", wire::Port::session, "\0\0\0\0\xfe"s, wire::WireError::unknown_type},
        {"not the first", wire::Port::session, "\0\0\0\0\x2b"s, wire::WireError::type_not_allowed},
        {"another port's", wire::Port::session, "\0\0\0\0\x0b"s, wire::WireError::type_not_allowed},
        {"too long", wire::Port::session, "\xff\xff\xff\xff\x20"s, wire::WireError::too_long},
        {"empty OPEN", wire::Port::session, "\0\0\0\0\x20"s, wire::WireError::bad_payload},
        {"guest's message", wire::Port::control, "\0\0\0\0\x04"s,
         wire::WireError::type_not_allowed},
        {"too long HELLO", wire::Port::control, "\0\x10\0\0\x01"s, wire::WireError::too_long},
        {"other version", wire::Port::control, "\0\0\0\x1b\x01\x7f\x7f"s + std::string(25, '\0'),
         wire::WireError::version_mismatch},
    };
    for (const Case& one : cases) {
        Peer peer = stream(one.port);
        peer.send_text(one.bytes);
        const auto frame = peer.receive();
        ASSERT_TRUE(frame) << one.name;
        ASSERT_EQ(frame->type, wire::ErrorMessage::kType) << one.name;
        const auto error = wire::decode_as<wire::SessionMessage>(wire::Direction::to_host,
                                                                 frame->type, frame->payload);
        ASSERT_TRUE(error) << one.name;
        EXPECT_EQ(std::get<wire::ErrorMessage>(*error).code, code(one.error)) << one.name;
        EXPECT_TRUE(peer.at_end()) << one.name;
    }
    expect_serving();
}

TEST_F(GuestControl, OutlivesRandomBytesOnEveryPort)
{
    start_ready();
    std::minstd_rand source(11);
    for (int round = 0; round < 200; ++round) {
        Peer peer = stream(round % 2 == 0 ? wire::Port::session : wire::Port::control);
        std::string bytes(source() % 200, '\0');
        for (char& byte : bytes) byte = static_cast<char>(source());
        peer.send_text(bytes);
    }
    expect_serving();
}

TEST_F(GuestControl, OutlivesBrokenPackets)
{
    start_ready();
    auto pair = sys::socket_pair(sys::SocketType::stream);
    ASSERT_TRUE(pair);
    const int one[] = {pair->second.get()};
    ASSERT_TRUE(sys::send_fds(channel_.get(), "nonsense", {}));
    ASSERT_TRUE(sys::send_fds(channel_.get(), "\xd1", one));
    const auto pass = wire::encode_packet(
        wire::Pass{5001, "s", wire::LeafKind::v1_tasks, 2});  // and no leaf comes
    ASSERT_TRUE(pass);
    ASSERT_TRUE(sys::send_fds(channel_.get(),
                              {reinterpret_cast<const char*>(pass->data()), pass->size()}, one));
    expect_serving();
}

TEST_F(GuestControl, TellsAPeerThatNothingListens)
{
    start_ready();
    for (const auto port : {wire::Port::network, wire::Port::bridge}) {
        const sys::UniqueFd fd = pass_stream(channel_.get(), port, "x");
        char bytes[512];
        const ssize_t got = ::recv(fd.get(), bytes, sizeof bytes, 0);
        ASSERT_GT(got, 5);
        EXPECT_EQ(static_cast<unsigned char>(bytes[4]), wire::ErrorMessage::kType);
        EXPECT_EQ(::recv(fd.get(), bytes, sizeof bytes, 0), 0);
    }
}

TEST_F(GuestControl, HoldsItsSessionLimit)
{
    wire::Bootstrap boot = record();
    boot.max_sessions = 2;
    start(boot);
    control_ = std::make_unique<Peer>(stream(wire::Port::control, ""));
    ASSERT_EQ(bring_up(*control_), "");
    std::vector<Peer> open;
    for (int i = 0; i < 2; ++i) {
        open.push_back(stream(wire::Port::session));
        open.back().send(shell("sleep 1000"));
        ASSERT_TRUE(open.back().session<wire::Confined>());
    }
    Peer third = stream(wire::Port::session);
    const auto error = third.session<wire::ErrorMessage>();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, code(wire::WireError::busy));
    open.front().send(wire::Signal{SIGKILL});
    EXPECT_EQ(collect(open.front()).exit, (wire::Exit{wire::ExitOutcome::signaled, SIGKILL}));
    expect_serving();
}

}  // namespace sandbox::guest::test
