// SPDX-License-Identifier: Apache-2.0
#include "control/frames.hpp"

#include <gtest/gtest.h>

namespace sandbox::control {
namespace {

using supervisor::Steer;

TEST(StreamFrames, HaveTheFormThatTheDocumentSays)
{
    EXPECT_EQ(encode_frame(FrameType::out, "ab"), std::string("\0\0\0\2\x10"
                                                              "ab",
                                                              7));
    EXPECT_EQ(encode_credit(FrameType::credit, 0x01020304), std::string("\0\0\0\4\x12\1\2\3\4", 9));
    EXPECT_EQ(encode_steer({.kind = Steer::Kind::resize, .rows = 24, .cols = 300}),
              std::string("\0\0\0\4\3\0\x18\1\x2c", 9));
}

TEST(StreamFrames, AreCutTheSameHoweverTheyArrive)
{
    const std::string bytes = encode_frame(FrameType::in, "hello") +
                              encode_frame(FrameType::in_end, {}) +
                              encode_frame(FrameType::result, "{}");
    for (std::size_t step = 1; step < bytes.size(); ++step) {
        FrameCutter cutter;
        std::vector<Frame> found;
        for (std::size_t at = 0; at < bytes.size(); at += step) {
            cutter.feed(std::string_view(bytes).substr(at, step));
            for (auto frame = cutter.next(); frame && *frame; frame = cutter.next()) {
                found.push_back(**frame);
            }
        }
        ASSERT_EQ(found.size(), 3U) << step;
        EXPECT_EQ(found[0], (Frame{FrameType::in, "hello"}));
        EXPECT_EQ(found[1], (Frame{FrameType::in_end, ""}));
        EXPECT_EQ(found[2].payload, "{}");
        EXPECT_EQ(cutter.held(), 0U);
    }
}

TEST(StreamFrames, UnknownTypesAndLongPayloadsAreRefused)
{
    FrameCutter unknown;
    unknown.feed(std::string("\0\0\0\0\x77", 5));
    EXPECT_EQ(unknown.next().error().code(), Code::corrupt);
    FrameCutter huge;
    huge.feed(std::string("\x7f\xff\xff\xff\1", 5));
    EXPECT_EQ(huge.next().error().code(), Code::corrupt);
    FrameCutter exact(2);
    exact.feed(encode_frame(FrameType::in, "ab"));
    EXPECT_TRUE(exact.next().value().has_value());
    exact.feed(encode_frame(FrameType::in, "abc"));
    EXPECT_FALSE(exact.next().has_value());
}

TEST(StreamFrames, SteeringRoundTrips)
{
    for (const Steer steer : {Steer{.kind = Steer::Kind::signal, .signal = 15},
                              Steer{.kind = Steer::Kind::resize, .rows = 1, .cols = 65535},
                              Steer{.kind = Steer::Kind::detach}}) {
        FrameCutter cutter;
        cutter.feed(encode_steer(steer));
        const auto read = decode_steer(cutter.next().value().value());
        ASSERT_TRUE(read.has_value());
        EXPECT_EQ(read->kind, steer.kind);
        EXPECT_EQ(read->signal, steer.signal);
        EXPECT_EQ(read->rows, steer.rows);
        EXPECT_EQ(read->cols, steer.cols);
    }
}

TEST(StreamFrames, SteeringOfAnotherFormIsNone)
{
    for (const Frame& frame :
         {Frame{FrameType::signal, ""}, Frame{FrameType::signal, std::string(1, '\0')},
          Frame{FrameType::signal, "A"}, Frame{FrameType::resize, "abc"},
          Frame{FrameType::detach, "x"}, Frame{FrameType::in, "x"}}) {
        EXPECT_FALSE(decode_steer(frame).has_value());
    }
    EXPECT_FALSE(decode_credit({FrameType::credit, "abc"}).has_value());
    EXPECT_EQ(decode_credit({FrameType::credit, std::string("\0\0\1\0", 4)}), 256U);
}

}  // namespace
}  // namespace sandbox::control
