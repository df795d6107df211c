// SPDX-License-Identifier: Apache-2.0
#include "channel/frame_stream.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::channel {
namespace {

using Control = FrameStream<wire::ControlMessage>;
using Session = FrameStream<wire::SessionMessage>;

sys::Deadline now() { return sys::Deadline::after(Millis{0}); }
sys::Deadline soon() { return sys::Deadline::after(Millis{10'000}); }

// Our stream and the raw end of a peer that may send whatever it likes.
template <class Stream>
struct Talk {
    explicit Talk(sys::SocketPair pair)
        : peer(std::move(pair.first)), stream(std::move(pair.second))
    {
    }
    Talk() : Talk(sys::socket_pair(sys::SocketType::stream).value()) {}

    void give(std::span<const std::byte> bytes)
    {
        ASSERT_EQ(send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(bytes.size()));
    }
    template <class M>
    void give_message(const M& message)
    {
        give(wire::encode(message).value());
    }

    sys::UniqueFd peer;
    Stream stream;
};

wire::Welcome welcome()
{
    wire::Welcome message;
    message.agent_version = "0.1.0";
    message.kernel_release = "6.1.0";
    return message;
}

// A header by hand: length, big endian, and type.
wire::ByteVector header(std::uint32_t length, std::uint8_t type)
{
    const auto bytes = wire::encode_header({.type = type, .length = length});
    return {bytes.begin(), bytes.end()};
}

TEST(FrameStream, DeliversAMessageThatComesByteByByte)
{
    Talk<Control> talk;
    const auto frame = wire::encode(welcome()).value();
    for (std::size_t i = 0; i + 1 < frame.size(); ++i) {
        talk.give(std::span(frame).subspan(i, 1));
        const auto early = talk.stream.receive(now());
        ASSERT_FALSE(early) << i;
        EXPECT_EQ(early.error().code(), Code::deadline_exceeded) << i;
    }
    talk.give(std::span(frame).last(1));
    const auto message = talk.stream.receive(now());
    ASSERT_TRUE(message) << message.error().message();
    EXPECT_EQ(std::get<wire::Welcome>(**message), welcome());
}

TEST(FrameStream, DeliversMessagesThatCameInOnePieceOneByOne)
{
    Talk<Session> talk;
    wire::ByteVector all;
    for (std::uint32_t pid = 1; pid <= 3; ++pid) {
        const auto frame = wire::encode(wire::Started{pid}).value();
        all.insert(all.end(), frame.begin(), frame.end());
    }
    talk.give(all);
    for (std::uint32_t pid = 1; pid <= 3; ++pid) {
        const auto message = talk.stream.receive(now());
        ASSERT_TRUE(message && *message);
        EXPECT_EQ(std::get<wire::Started>(**message).pid, pid);
    }
    EXPECT_EQ(talk.stream.receive(now()).error().code(), Code::deadline_exceeded);
}

TEST(FrameStream, SaysNothingAtACleanEndAndCorruptInsideAFrame)
{
    Talk<Control> clean;
    clean.give_message(wire::Provisioned{});
    clean.peer.reset();
    EXPECT_TRUE(clean.stream.receive(soon()).value());
    EXPECT_FALSE(clean.stream.receive(soon()).value());

    Talk<Control> cut;
    const auto frame = wire::encode(welcome()).value();
    cut.give(std::span(frame).first(frame.size() - 1));
    cut.peer.reset();
    const auto end = cut.stream.receive(soon());
    ASSERT_FALSE(end);
    EXPECT_EQ(end.error().code(), Code::corrupt);
}

TEST(FrameStream, SendsFramesThatTheOtherSideDecodes)
{
    Talk<Control> talk;
    wire::Ready ready;
    ready.policy_generation = 7;
    ASSERT_TRUE(talk.stream.send(ready));
    std::array<std::byte, 256> bytes{};
    const std::size_t count = receive_bytes(talk.peer.get(), bytes, soon()).value();
    wire::FrameDecoder decoder(wire::Port::control, wire::Direction::to_guest, wire::Stage::later);
    std::span<const std::byte> input(bytes.data(), count);
    const auto frame = decoder.next(input);
    ASSERT_TRUE(frame && *frame);
    const auto message = wire::decode_as<wire::ControlMessage>(wire::Direction::to_guest,
                                                               (*frame)->type, (*frame)->payload);
    ASSERT_TRUE(message);
    EXPECT_EQ(std::get<wire::Ready>(*message), ready);
}

TEST(FrameStream, SendsDescriptorsWithTheFirstByte)
{
    Talk<Session> talk;
    sys::Pipe pipe = sys::make_pipe().value();
    wire::Open open;
    open.argv = {"/bin/true"};
    open.cwd = "/";
    open.stdio = wire::SessionStdio::descriptors;
    const std::array<int, 3> fds{pipe.read.get(), pipe.write.get(), pipe.write.get()};
    ASSERT_TRUE(talk.stream.send(open, fds));

    auto first = sys::recv_fds(talk.peer.get(), 1, 3);
    ASSERT_TRUE(first) << first.error().message();
    EXPECT_EQ(first->bytes.size(), 1U);
    ASSERT_EQ(first->fds.size(), 3U);
    EXPECT_EQ(sys::identity_of_fd(first->fds[0].get()).value(),
              sys::identity_of_fd(pipe.read.get()).value());
    const auto frame = wire::encode(open).value();
    std::vector<std::byte> rest(frame.size());
    const std::size_t count = receive_bytes(talk.peer.get(), rest, soon()).value();
    EXPECT_EQ(count, frame.size() - 1);
    EXPECT_TRUE(std::equal(frame.begin() + 1, frame.end(), rest.begin()));
}

TEST(FrameStream, SendsAFrameLargerThanTheSocketBufferToASlowReader)
{
    Talk<Session> talk;
    const wire::Stdin big{wire::ByteVector(2U << 20, std::byte{'x'})};
    std::size_t got = 0;
    std::thread reader([&] {
        std::vector<std::byte> buffer(4096);
        while (got < big.bytes.size() + wire::kHeaderSize) {
            const auto count = receive_bytes(talk.peer.get(), buffer, soon());
            if (!count || *count == 0) return;
            got += *count;
        }
    });
    const auto sent = talk.stream.send(big);
    reader.join();
    EXPECT_TRUE(sent);
    EXPECT_EQ(got, big.bytes.size() + wire::kHeaderSize);
}

TEST(FrameStream, ReportsAPeerThatIsGoneInsteadOfDying)
{
    Talk<Control> talk;
    talk.peer.reset();
    const auto sent = talk.stream.send(wire::Ready{});
    ASSERT_FALSE(sent);
    EXPECT_EQ(sent.error().errnum(), EPIPE);
}

TEST(FrameStream, CallsEveryHostileFrameCorruptAndStaysSo)
{
    const auto with_payload = [](wire::ByteVector bytes, std::size_t count) {
        bytes.insert(bytes.end(), count, std::byte{0xFF});
        return bytes;
    };
    const std::vector<std::pair<const char*, wire::ByteVector>> hostile{
        {"unknown type", header(0, 0xEE)},
        {"type of another port", header(4, wire::Started::kType)},
        {"request from the wrong side", header(0, wire::Ready::kType)},
        {"longer than its ceiling", header(wire::kMaxHead + 1, wire::Welcome::kType)},
        {"length of all ones", header(UINT32_MAX, wire::Welcome::kType)},
        {"payload of rubbish", with_payload(header(32, wire::Welcome::kType), 32)},
        {"payload where none belongs", with_payload(header(1, wire::Provisioned::kType), 1)},
        {"payload too short", with_payload(header(2, wire::TimeAck::kType), 2)}};
    for (const auto& [name, bytes] : hostile) {
        Talk<Control> talk;
        talk.give(bytes);
        talk.give_message(welcome());
        for (int attempt = 0; attempt < 2; ++attempt) {
            const auto message = talk.stream.receive(soon());
            ASSERT_FALSE(message) << name << ", attempt " << attempt;
            EXPECT_EQ(message.error().code(), Code::corrupt) << name;
        }
    }
}

TEST(FrameStream, ForgetsNothingWhenItGivesUpAtTheDeadline)
{
    Talk<Session> talk;
    const wire::Stdout out{wire::ByteVector(5000, std::byte{'y'})};
    const auto frame = wire::encode(out).value();
    for (std::size_t at = 0; at < frame.size(); at += 999) {
        talk.give(std::span(frame).subspan(at, std::min<std::size_t>(999, frame.size() - at)));
        const bool whole = at + 999 >= frame.size();
        EXPECT_TRUE(whole || !talk.stream.receive(now())) << at;
    }
    const auto message = talk.stream.receive(now());
    ASSERT_TRUE(message) << message.error().message();
    EXPECT_EQ(std::get<wire::Stdout>(**message), out);
}

TEST(Ask, GivesTheWantedReplyAndTurnsEverythingElseIntoAnError)
{
    Talk<Control> good;
    good.give_message(wire::ReadyAck{});
    EXPECT_TRUE(ask<wire::ReadyAck>(good.stream, wire::Ready{}, soon()));

    Talk<Control> refused;
    refused.give_message(wire::ErrorMessage{
        static_cast<std::uint16_t>(wire::WireError::not_provisioned), "no \x1b[31m PROVISION yet"});
    const auto refusal = ask<wire::ReadyAck>(refused.stream, wire::Ready{}, soon());
    ASSERT_FALSE(refusal);
    EXPECT_EQ(refusal.error().code(), Code::denied);
    EXPECT_EQ(refusal.error().message().find('\x1b'), std::string::npos);
    EXPECT_NE(refusal.error().message().find("PROVISION yet"), std::string::npos);

    Talk<Control> other;
    other.give_message(wire::Provisioned{});
    EXPECT_EQ(ask<wire::ReadyAck>(other.stream, wire::Ready{}, soon()).error().code(),
              Code::corrupt);

    Talk<Control> closed;
    ASSERT_EQ(shutdown(closed.peer.get(), SHUT_WR), 0);
    EXPECT_EQ(ask<wire::ReadyAck>(closed.stream, wire::Ready{}, soon()).error().code(),
              Code::unavailable);

    Talk<Control> silent;
    EXPECT_EQ(ask<wire::ReadyAck>(silent.stream, wire::Ready{}, now()).error().code(),
              Code::deadline_exceeded);
}

}  // namespace
}  // namespace sandbox::channel
