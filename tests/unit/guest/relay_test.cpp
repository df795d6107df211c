// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <thread>

#include "relay_fixture.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"
#include "wire/mux_engine.hpp"

namespace sandbox::guest::test {
namespace {

constexpr Millis kClientPatience{20'000};

struct Pipes {
    sys::Pipe in, out, err;
    std::array<int, 3> theirs() const { return {in.read.get(), out.write.get(), err.write.get()}; }
    void close_theirs()
    {
        in.read.reset();
        out.write.reset();
        err.write.reset();
    }
};

Pipes make_pipes() { return {*sys::make_pipe(), *sys::make_pipe(), *sys::make_pipe()}; }

std::string read_all_of(int fd)
{
    std::string all;
    std::array<char, 65536> chunk;
    for (;;) {
        const auto ready = sys::poll_one(fd, POLLIN, sys::Deadline::after(kClientPatience));
        if (!ready || *ready == 0) return all + "[nothing came in time]";
        const ssize_t count = ::read(fd, chunk.data(), chunk.size());
        if (count <= 0) return all;
        all.append(chunk.data(), static_cast<std::size_t>(count));
    }
}

std::string read_up_to(int fd, std::string_view mark)
{
    std::string all;
    while (all.find(mark) == std::string::npos) {
        std::array<char, 4096> chunk;
        const auto ready = sys::poll_one(fd, POLLIN, sys::Deadline::after(kClientPatience));
        if (!ready || *ready == 0) return all + "[nothing came in time]";
        const ssize_t count = ::read(fd, chunk.data(), chunk.size());
        if (count <= 0) return all + "[end]";
        all.append(chunk.data(), static_cast<std::size_t>(count));
    }
    return all;
}

}  // namespace

TEST_F(RelayTest, SaysWhatTheGuestSaysAndEndsWithTheShim)
{
    start_relay_ready();
    expect_serving();
    control_.reset();
    channel_.reset();
    EXPECT_EQ(relay_end(), channel::MuxRelayEnd::shim_gone);
}

TEST_F(RelayTest, EndsWithTheGuest)
{
    start_relay_ready();
    control_->send(wire::Poweroff{wire::PoweroffReason::stop});
    EXPECT_TRUE(control_->control<wire::PoweroffAck>());
    EXPECT_TRUE(wait_gone());
    EXPECT_EQ(relay_end(), channel::MuxRelayEnd::guest_gone);
}

TEST_F(RelayTest, RunsSessionsWithFramesAsThoughNobodyStoodBetween)
{
    start_relay_ready();
    const Ran ran = run_shell("echo out; echo err >&2; exit 7");
    EXPECT_EQ(ran.trouble, "");
    EXPECT_EQ(ran.out, "out\n");
    EXPECT_EQ(ran.err, "err\n");
    EXPECT_EQ(ran.exit, (wire::Exit{wire::ExitOutcome::exited, 7}));
}

TEST_F(RelayTest, TurnsDescriptorsIntoFramesAndBack)
{
    start_relay_ready();
    Pipes pipes = make_pipes();
    Peer peer = stream(wire::Port::session, "s9");
    wire::Open open = shell("cat; echo done >&2; exit 3");
    open.stdio = wire::SessionStdio::descriptors;
    open.gate = true;
    peer.send_open(open, pipes.theirs());
    pipes.close_theirs();
    ASSERT_TRUE(peer.session<wire::Confined>());
    peer.send(wire::Go{});
    ASSERT_TRUE(peer.session<wire::Started>());
    ASSERT_TRUE(sys::write_all(pipes.in.write.get(), "some input"));
    pipes.in.write.reset();
    EXPECT_EQ(read_all_of(pipes.out.read.get()), "some input");
    EXPECT_EQ(read_all_of(pipes.err.read.get()), "done\n");
    const auto exit = peer.session<wire::Exit>();
    ASSERT_TRUE(exit);
    EXPECT_EQ(*exit, (wire::Exit{wire::ExitOutcome::exited, 3}));
    EXPECT_TRUE(peer.at_end());
    const auto opened = told<wire::SessionOpened>();
    ASSERT_TRUE(opened);
    EXPECT_EQ(opened->session, "s9");
    const auto ended = told<wire::SessionEnded>();
    ASSERT_TRUE(ended);
    EXPECT_EQ(ended->value, 3);
}

TEST_F(RelayTest, CarriesMegabytesBothWays)
{
    start_relay_ready();
    Pipes pipes = make_pipes();
    Peer peer = stream(wire::Port::session);
    wire::Open open = shell("cat");
    open.stdio = wire::SessionStdio::descriptors;
    peer.send_open(open, pipes.theirs());
    pipes.close_theirs();
    std::string sent(8U << 20, '\0');
    for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 31 + i / 4099);
    std::thread writer([&] {
        EXPECT_TRUE(sys::write_all(pipes.in.write.get(), sent));
        pipes.in.write.reset();
    });
    const std::string got = read_all_of(pipes.out.read.get());
    writer.join();
    EXPECT_EQ(got.size(), sent.size());
    EXPECT_TRUE(got == sent);
    EXPECT_EQ(collect(peer).exit, (wire::Exit{wire::ExitOutcome::exited, 0}));
}

TEST_F(RelayTest, AProgramHearsThatNobodyReadsIt)
{
    start_relay_ready();
    Pipes pipes = make_pipes();
    Peer peer = stream(wire::Port::session);
    wire::Open open = shell("exec yes");
    open.stdio = wire::SessionStdio::descriptors;
    peer.send_open(open, pipes.theirs());
    pipes.close_theirs();
    EXPECT_EQ(read_up_to(pipes.out.read.get(), "y\n").substr(0, 2), "y\n");
    pipes.out.read.reset();
    EXPECT_EQ(collect(peer).exit, (wire::Exit{wire::ExitOutcome::signaled, SIGPIPE}));
}

TEST_F(RelayTest, AClientThatDoesNotReadHoldsNobodyElse)
{
    start_relay_ready();
    Pipes pipes = make_pipes();
    Peer peer = stream(wire::Port::session);
    wire::Open open = shell("exec yes");
    open.stdio = wire::SessionStdio::descriptors;
    peer.send_open(open, pipes.theirs());
    pipes.close_theirs();
    ASSERT_TRUE(peer.session<wire::Confined>());
    ASSERT_TRUE(peer.session<wire::Started>());
    for (int i = 0; i < 5; ++i) expect_serving();
    peer.close();  // and whoever opened it takes it along
    const auto ended = told<wire::SessionEnded>();
    EXPECT_TRUE(ended);
    expect_serving();
}

TEST_F(RelayTest, AClientThatGoesEndsItsSession)
{
    start_relay_ready();
    Peer peer = stream(wire::Port::session, "gone");
    peer.send(shell("sleep 1000"));
    ASSERT_TRUE(peer.session<wire::Confined>());
    ASSERT_TRUE(peer.session<wire::Started>());
    peer.close();
    for (;;) {
        const auto ended = told<wire::SessionEnded>();
        ASSERT_TRUE(ended);
        if (ended->session != "gone") continue;
        EXPECT_EQ(ended->outcome, wire::ExitOutcome::signaled);
        break;
    }
    expect_serving();
}

TEST_F(RelayTest, SignalsReachTheProgram)
{
    start_relay_ready();
    Pipes pipes = make_pipes();
    Peer peer = stream(wire::Port::session);
    wire::Open open = shell("trap 'exit 42' TERM; echo up; while :; do sleep 0.05; done");
    open.stdio = wire::SessionStdio::descriptors;
    peer.send_open(open, pipes.theirs());
    pipes.close_theirs();
    EXPECT_EQ(read_up_to(pipes.out.read.get(), "up\n"), "up\n");
    peer.send(wire::Signal{SIGTERM});
    EXPECT_EQ(collect(peer).exit, (wire::Exit{wire::ExitOutcome::exited, 42}));
}

TEST_F(RelayTest, MakesTheTerminalInTheGuest)
{
    start_relay_ready();
    auto pair = sys::socket_pair(sys::SocketType::stream);
    ASSERT_TRUE(pair);
    Peer peer = stream(wire::Port::session);
    wire::Open open = shell("stty size; read line; echo got $line; stty size; tty; exit 5");
    open.kind = wire::SessionKind::pty;
    open.stdio = wire::SessionStdio::descriptors;
    open.rows = 30;
    open.cols = 100;
    const int theirs = pair->second.get();
    peer.send_open(open, std::array{theirs, theirs, theirs});
    pair->second.reset();
    const int ours = pair->first.get();
    EXPECT_EQ(read_up_to(ours, "100\r\n"), "30 100\r\n");
    peer.send(wire::Resize{40, 120});
    ASSERT_EQ(::send(ours, "typed\n", 6, MSG_NOSIGNAL), 6);
    const std::string rest = read_up_to(ours, "/dev/pts/");
    EXPECT_NE(rest.find("got typed\r\n"), std::string::npos) << rest;
    EXPECT_NE(rest.find("40 120\r\n"), std::string::npos) << rest;
    EXPECT_EQ(collect(peer).exit, (wire::Exit{wire::ExitOutcome::exited, 5}));
}

TEST_F(RelayTest, ManySessionsAtATimeAllEnd)
{
    start_relay_ready();
    constexpr int kSessions = 24;
    std::vector<Peer> peers;
    for (int i = 0; i < kSessions; ++i) {
        peers.push_back(stream(wire::Port::session, "m" + std::to_string(i)));
        peers.back().send(shell("echo " + std::to_string(i) + "; exit " + std::to_string(i)));
    }
    for (int i = 0; i < kSessions; ++i) {
        const Ran ran = collect(peers[static_cast<std::size_t>(i)]);
        EXPECT_EQ(ran.out, std::to_string(i) + "\n");
        EXPECT_EQ(ran.exit.value, i);
    }
}

TEST_F(RelayTest, OpensTheEventPortAsOnAHost)
{
    start_relay_ready();
    Peer events = stream(wire::Port::events, "");
    const auto auth = events.expect<wire::EventAuth, wire::EventMessage>();
    ASSERT_TRUE(auth);
    EXPECT_EQ(auth->nonce[0], 1);
    EXPECT_TRUE((events.expect<wire::Heartbeat, wire::EventMessage>()));
}

TEST_F(RelayTest, APortThatNothingListensOnIsRefused)
{
    start_relay_ready();
    Peer peer = stream(wire::Port::network, "n1");
    const auto refused = told<wire::PassRefused>();
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->session, "n1");
    EXPECT_EQ(refused->code, static_cast<std::uint16_t>(wire::WireError::not_ready));
}

TEST_F(RelayTest, DoesNotSetTheHostsClock)
{
    start_relay_ready();
    control_->send(wire::TimeSet{1});
    const auto error = control_->control<wire::ErrorMessage>();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, static_cast<std::uint16_t>(wire::WireError::refused));
}

// --- a guest that is somebody else ---------------------------------------------------------------

TEST_F(RelayTest, AGuestThatBreaksTheProtocolIsFaulty)
{
    start_lonely_relay();
    const std::string noise(64, '\xff');
    ASSERT_TRUE(sys::write_all(port_.get(), noise));
    const auto faulty = told<wire::GuestFaulty>();
    ASSERT_TRUE(faulty);
    EXPECT_EQ(faulty->code, static_cast<std::uint16_t>(wire::WireError::unknown_type));
    EXPECT_EQ(relay_end(), channel::MuxRelayEnd::faulty);
}

TEST_F(RelayTest, AGuestThatFloodsBeyondItsCreditIsFaulty)
{
    start_lonely_relay();
    wire::MuxEngine guest(wire::MuxSide::guest);
    const auto hello = guest.output();
    ASSERT_TRUE(
        sys::write_all(port_.get(), {reinterpret_cast<const char*>(hello.data()), hello.size()}));
    // Packets of stream 0 that nobody takes off the channel: the relay stops granting, not growing.
    const auto log = wire::encode(wire::MuxData{wire::kInitStream, wire::ByteVector(32768)});
    ASSERT_TRUE(log);
    for (int i = 0; i < 64; ++i) {
        if (::send(port_.get(), log->data(), log->size(), MSG_NOSIGNAL) < 0) break;
    }
    EXPECT_EQ(relay_end(), channel::MuxRelayEnd::faulty);
}

TEST_F(RelayTest, AGuestMayNotCallItselfFaultyNorOpenStreams)
{
    start_lonely_relay();
    wire::MuxEngine guest(wire::MuxSide::guest);
    const auto flush = [&] {
        for (auto bytes = guest.output(); !bytes.empty(); bytes = guest.output()) {
            ASSERT_TRUE(sys::write_all(
                port_.get(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
            guest.sent(bytes.size());
        }
    };
    const auto receive = [&] {
        std::array<std::byte, 65536> chunk;
        const ssize_t count = ::recv(port_.get(), chunk.data(), chunk.size(), 0);
        ASSERT_GT(count, 0);
        ASSERT_TRUE(guest.feed(std::span(chunk).first(static_cast<std::size_t>(count))));
    };
    flush();
    while (!guest.greeted()) receive();
    const auto id = guest.open(5003);
    flush();
    std::optional<wire::MuxEvent> event;
    while (!(event = guest.next_event())) receive();
    const auto* reset = std::get_if<wire::StreamReset>(&*event);
    ASSERT_NE(reset, nullptr);
    EXPECT_EQ(reset->stream, *id);
    const auto frame = wire::encode_packet(wire::GuestFaulty{1, "me"});
    ASSERT_TRUE(frame);
    const auto header = wire::encode_header(
        {wire::GuestFaulty::kType, static_cast<std::uint32_t>(frame->size() - 1)});
    guest.write(wire::kInitStream, header);
    guest.write(wire::kInitStream, std::span(*frame).subspan(1));
    flush();
    EXPECT_EQ(relay_end(), channel::MuxRelayEnd::faulty);
}

}  // namespace sandbox::guest::test
