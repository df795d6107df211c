// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "samples.hpp"

namespace sandbox::wire::test {

namespace {

constexpr std::array kStreamPorts{Port::control, Port::session,   Port::events, Port::network,
                                  Port::bridge,  Port::ssh_agent, Port::helper};

using FirstBytes = std::span<const std::byte, kFirstFrameSize>;

bool is_stream(Port port) { return std::ranges::find(kStreamPorts, port) != kStreamPorts.end(); }

FrameDecoder decoder_for(const Sample& sample)
{
    return FrameDecoder(sample.port, sample.direction, stage_of(type_of(sample.message)));
}

// Every frame of `bytes` when fed in two pieces.
std::vector<Frame> frames_of(FrameDecoder decoder, std::span<const std::byte> bytes,
                             std::size_t cut)
{
    std::vector<Frame> frames;
    for (auto piece : {bytes.first(cut), bytes.subspan(cut)}) {
        while (true) {
            auto frame = decoder.next(piece);
            if (!frame) {
                ADD_FAILURE() << Error(frame.error()).message();
                return frames;
            }
            if (!*frame) break;
            frames.push_back(std::move(**frame));
        }
        EXPECT_TRUE(piece.empty());
    }
    EXPECT_TRUE(decoder.finish());
    return frames;
}

WireError header_error(Port port, Direction direction, Stage stage, std::uint8_t type,
                       std::uint32_t length)
{
    const auto header = decode_header(port, direction, stage, encode_header({type, length}));
    EXPECT_FALSE(header);
    return header ? WireError::busy : header.error().error;
}

}  // namespace

TEST(FrameDecoder, YieldsTheSameFramesHoweverTheBytesAreSplit)
{
    ByteVector stream = encode_any(Message(SessionMessage(Open{.argv = {"/bin/cat"}})));
    for (const auto& message : {SessionMessage(Stdin{ByteVector(40, std::byte{7})}),
                                SessionMessage(StdinEof{}), SessionMessage(Signal{15})}) {
        const ByteVector frame = encode_any(Message(message));
        stream.insert(stream.end(), frame.begin(), frame.end());
    }
    const FrameDecoder fresh(Port::session, Direction::to_guest);
    const auto whole = frames_of(fresh, stream, 0);
    ASSERT_EQ(whole.size(), 4U);
    EXPECT_EQ(whole.at(2), (Frame{0x23, {}}));
    for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
        EXPECT_EQ(frames_of(fresh, stream, cut), whole) << "cut at " << cut;
    }
}

TEST(FrameDecoder, YieldsFramesFedOneByteAtATime)
{
    for (const Sample& sample : samples()) {
        if (!is_stream(sample.port)) continue;
        const ByteVector bytes = encode_any(sample.message);
        FrameDecoder decoder = decoder_for(sample);
        std::optional<Frame> got;
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            EXPECT_FALSE(got) << sample.name << " came before its last byte";
            std::span<const std::byte> one(&bytes.at(i), 1);
            auto frame = decoder.next(one);
            ASSERT_TRUE(frame) << sample.name;
            got = std::move(*frame);
        }
        ASSERT_TRUE(got) << sample.name;
        EXPECT_EQ(got->payload, ByteVector(bytes.begin() + 5, bytes.end())) << sample.name;
    }
}

TEST(FrameDecoder, ReportsTruncationAtEveryByteInsideAFrame)
{
    for (const Sample& sample : samples()) {
        if (!is_stream(sample.port)) continue;
        const ByteVector bytes = encode_any(sample.message);
        for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
            FrameDecoder decoder = decoder_for(sample);
            std::span<const std::byte> input(bytes.data(), cut);
            const auto frame = decoder.next(input);
            ASSERT_TRUE(frame && !*frame) << sample.name << " cut at " << cut;
            const auto end = decoder.finish();
            ASSERT_FALSE(end) << sample.name << " cut at " << cut;
            EXPECT_EQ(end.error().error, WireError::truncated);
        }
    }
}

TEST(FrameDecoder, TakesAnEndOfStreamBetweenFramesAsAClose)
{
    FrameDecoder decoder(Port::control, Direction::to_guest);
    EXPECT_TRUE(decoder.finish());
    const ByteVector hello = encode_any(Message(ControlMessage(Hello{})));
    std::span<const std::byte> input(hello);
    ASSERT_TRUE(decoder.next(input));
    EXPECT_TRUE(decoder.finish());
}

TEST(FrameDecoder, LeavesBytesBehindAFrameToTheCaller)
{
    ByteVector stream = encode_any(Message(BridgeMessage(BridgeReady{})));
    stream.push_back(std::byte{'G'});
    FrameDecoder decoder(Port::bridge, Direction::to_host);
    std::span<const std::byte> input(stream);
    const auto frame = decoder.next(input);
    ASSERT_TRUE(frame && *frame);
    ASSERT_EQ(input.size(), 1U);
    EXPECT_EQ(input.front(), std::byte{'G'});
}

TEST(FrameDecoder, StaysFailedAfterTheFirstFailure)
{
    FrameDecoder decoder(Port::control, Direction::to_guest);
    const ByteVector bad = from_hex("00 00 00 00 1f");
    std::span<const std::byte> input(bad);
    ASSERT_FALSE(decoder.next(input));
    const ByteVector hello = encode_any(Message(ControlMessage(Hello{})));
    input = hello;
    const auto again = decoder.next(input);
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().error, WireError::unknown_type);
    EXPECT_EQ(input.size(), hello.size()) << "read on after a violation";
    EXPECT_FALSE(decoder.finish());
}

TEST(FrameDecoder, RefusesASecondOpeningFrame)
{
    const ByteVector hello = encode_any(Message(ControlMessage(Hello{})));
    FrameDecoder decoder(Port::control, Direction::to_guest);
    std::span<const std::byte> input(hello);
    ASSERT_TRUE(decoder.next(input));
    input = hello;
    const auto second = decoder.next(input);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().error, WireError::type_not_allowed);
}

TEST(FrameHeader, TakesEachCeilingAndRefusesOneMore)
{
    for (const TypeInfo& row : message_table()) {
        const Port port = row.port == Port::any ? Port::control : row.port;
        const Direction way = row.direction == Direction::both ? Direction::to_host : row.direction;
        const Stage stage = row.opens ? Stage::first : Stage::later;
        const auto fits = decode_header(port, way, stage, encode_header({row.type, row.ceiling}));
        ASSERT_TRUE(fits) << row.name;
        EXPECT_EQ(fits->length, row.ceiling);
        EXPECT_EQ(header_error(port, way, stage, row.type, row.ceiling + 1), WireError::too_long)
            << row.name;
        EXPECT_EQ(header_error(port, way, stage, row.type, 0xFFFF'FFFF), WireError::too_long)
            << row.name;
    }
}

TEST(FrameHeader, HoldsTheCeilingsOfTheSpecification)
{
    const auto ceiling = [](std::uint8_t type) {
        for (const TypeInfo& row : message_table()) {
            if (row.type == type) return row.ceiling;
        }
        return 0U;
    };
    EXPECT_EQ(ceiling(0x01), 8192U);
    EXPECT_EQ(ceiling(0x20), 1048576U);
    EXPECT_EQ(ceiling(0x22), 8388608U);
    EXPECT_EQ(ceiling(0x24), 8388608U);
    EXPECT_EQ(ceiling(0x25), 8388608U);
    EXPECT_EQ(ceiling(0x2A), 8192U);
    EXPECT_EQ(ceiling(0x62), 65535U);
    EXPECT_EQ(ceiling(0xA3), 8388608U);
    EXPECT_EQ(ceiling(0xD1), 4095U);
    EXPECT_EQ(ceiling(0xE0), 262144U);
}

TEST(FrameHeader, SortsEveryTypeOnEveryPortIntoKnownForeignOrUnknown)
{
    std::set<std::uint8_t> known;
    for (const TypeInfo& row : message_table()) {
        EXPECT_TRUE(known.insert(row.type).second) << row.name << " shares its type";
    }
    for (const Port port : kStreamPorts) {
        for (unsigned value = 0; value < 256; ++value) {
            const auto type = static_cast<std::uint8_t>(value);
            for (const Direction way : {Direction::to_guest, Direction::to_host}) {
                const auto found = look_up(port, way, Stage::later, type);
                if (!known.contains(type)) {
                    ASSERT_FALSE(found);
                    EXPECT_EQ(found.error().error, WireError::unknown_type);
                } else if (found) {
                    EXPECT_TRUE(found->port == port || found->port == Port::any);
                    EXPECT_TRUE(found->direction == way || found->direction == Direction::both);
                    EXPECT_FALSE(found->opens);
                } else {
                    EXPECT_EQ(found.error().error, WireError::type_not_allowed);
                }
            }
        }
    }
}

TEST(FrameHeader, LetsOnlyTheOpenerBeBoundToTheOpeningFrame)
{
    for (const TypeInfo& row : message_table()) {
        if (!row.opens || row.port == Port::bootstrap) continue;
        EXPECT_TRUE(look_up(row.port, row.direction, Stage::first, row.type)) << row.name;
        EXPECT_FALSE(look_up(row.port, row.direction, Stage::first, ErrorMessage::kType));
        const Direction answer = row.direction == Direction::to_guest ? Direction::to_host
                                                                      : Direction::to_guest;
        if (row.direction == Direction::both) continue;  // both sides open the mux
        EXPECT_TRUE(look_up(row.port, answer, Stage::first, ErrorMessage::kType)) << row.name;
        EXPECT_FALSE(look_up(row.port, answer, Stage::first, row.type)) << row.name;
    }
}

TEST(FrameDecoder, SurvivesRandomBytesAndNeverYieldsAnIllegalFrame)
{
    std::mt19937 random(20'260'101);  // fixed: a failure must come again
    std::uniform_int_distribution<unsigned> any(0, 255);
    for (int round = 0; round < 20'000; ++round) {
        const Port port = kStreamPorts.at(any(random) % kStreamPorts.size());
        const Direction way = any(random) % 2 == 0 ? Direction::to_guest : Direction::to_host;
        ByteVector bytes(any(random));
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(any(random));
        // Short lengths and real types get past the header often enough to matter.
        if (bytes.size() > 5) {
            bytes[0] = bytes[1] = bytes[2] = std::byte{0};
            bytes[4] = static_cast<std::byte>(
                message_table()[any(random) % message_table().size()].type);
        }
        FrameDecoder decoder(port, way, any(random) % 2 == 0 ? Stage::first : Stage::later);
        std::span<const std::byte> input(bytes);
        while (true) {
            const auto frame = decoder.next(input);
            if (!frame || !*frame) break;
            const auto message = decode_payload(port, way, (*frame)->type, (*frame)->payload);
            // What decodes encodes to the same bytes: the encoding is canonical.
            if (message) {
                const ByteVector again = encode_any(*message);
                EXPECT_EQ(ByteVector(again.begin() + 5, again.end()), (*frame)->payload);
            }
        }
    }
}

TEST(FirstFrame, AcceptsTheRightNonceOnEachGuestOpenedPort)
{
    Nonce nonce{};
    nonce.fill(0x5A);
    const auto check = [&nonce](Port port, const auto& message) {
        const ByteVector bytes = *encode(message);
        EXPECT_EQ(bytes.size(), kFirstFrameSize);
        return check_first_frame(port, FirstBytes(bytes.data(), kFirstFrameSize), nonce);
    };
    EXPECT_EQ(check(Port::events, EventAuth{kProtocolVersion, nonce}), FirstFrame::accepted);
    EXPECT_EQ(check(Port::network, NetAuth{kProtocolVersion, nonce}), FirstFrame::accepted);
    EXPECT_EQ(check(Port::ssh_agent, AgentAuth{kProtocolVersion, nonce}), FirstFrame::accepted);
    EXPECT_EQ(check(Port::network, EventAuth{kProtocolVersion, nonce}), FirstFrame::refused);
    EXPECT_EQ(check(Port::events, EventAuth{kProtocolVersion + 1, nonce}),
              FirstFrame::version_mismatch);
    // The host opens these, so nothing from the guest may open them.
    EXPECT_EQ(check(Port::session, EventAuth{kProtocolVersion, nonce}), FirstFrame::refused);
    EXPECT_EQ(check(Port::control, EventAuth{kProtocolVersion, nonce}), FirstFrame::refused);
}

TEST(FirstFrame, SaysNothingOfTheVersionToAPeerWithoutTheNonce)
{
    Nonce nonce{};
    nonce.fill(0x5A);
    for (std::size_t at = 0; at < kNonceSize; ++at) {
        for (const unsigned bit : {0U, 7U}) {
            Nonce wrong = nonce;
            wrong.at(at) = static_cast<std::uint8_t>(wrong.at(at) ^ (1U << bit));
            for (const std::uint16_t version :
                 std::array<std::uint16_t, 2>{kProtocolVersion, kProtocolVersion + 1}) {
                const ByteVector bytes = *encode(EventAuth{version, wrong});
                EXPECT_EQ(check_first_frame(Port::events, FirstBytes(bytes.data(), kFirstFrameSize),
                                            nonce),
                          FirstFrame::refused)
                    << "byte " << at << " bit " << bit << " version " << version;
            }
        }
    }
}

TEST(FirstFrame, RefusesAnyOtherTypeOrLength)
{
    const Nonce nonce{};
    ByteVector bytes = *encode(EventAuth{kProtocolVersion, nonce});
    const auto check = [&bytes, &nonce] {
        return check_first_frame(Port::events, FirstBytes(bytes.data(), kFirstFrameSize), nonce);
    };
    ASSERT_EQ(check(), FirstFrame::accepted);
    for (const std::uint8_t length : std::array<std::uint8_t, 2>{33, 35}) {
        bytes.at(3) = std::byte{length};
        EXPECT_EQ(check(), FirstFrame::refused) << int{length};
    }
    bytes.at(3) = std::byte{34};
    for (const std::uint8_t type : std::array<std::uint8_t, 4>{0x41, 0x60, 0x7F, 0x11}) {
        bytes.at(4) = std::byte{type};
        EXPECT_EQ(check(), FirstFrame::refused) << int{type};
    }
}

}  // namespace sandbox::wire::test
