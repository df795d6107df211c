// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "supervisor/service.hpp"

// What travels on an upgraded connection, and between the daemon and its workers: u32 big-endian
// payload length, u8 type, payload; the outer form of every frame of ours (docs/protocol.md). Pure.
// docs/api.md, Streams, has the same table for people.
namespace sandbox::control {

// Values are the protocol: never reused.
enum class FrameType : std::uint8_t {
    // To the server.
    in = 1,  // bytes of standard input, within the credit
    in_end = 2,  // no more of them
    resize = 3,  // u16 rows, u16 columns
    signal = 4,  // u8 number
    detach = 5,
    taken = 6,  // u32: so many bytes of output were passed on
    gone = 7,  // u8: who read stream 1 or 2 (out, err) has gone
    // From the server.
    out = 16,
    err = 17,
    credit = 18,  // u32: so many bytes of input were passed on
    result = 19,  // JSON; the last frame
    // Between daemon and worker only.
    head = 32,  // JSON {"status", "type"}: an answer begins
    body = 33,
};

struct Frame {
    FrameType type = FrameType::in;
    std::string payload;
    bool operator==(const Frame&) const = default;
};

// u32 length and u8 type.
inline constexpr std::size_t kFrameHeader = 5;
inline constexpr std::size_t kMostFrameBytes = 64U << 10;  // of a stream
inline constexpr std::size_t kMostResultBytes = 32U << 20;  // of an answer between our processes
// Input in flight: what a client may send before it is told that some was passed on.
inline constexpr std::size_t kInputCredit = 256U << 10;
// The same for output: so the result never waits behind bytes that nobody reads.
inline constexpr std::size_t kOutputCredit = 256U << 10;

// Requires: the payload is at most kMostResultBytes.
std::string encode_frame(FrameType type, std::string_view payload);
// Requires: type is credit or taken.
std::string encode_credit(FrameType type, std::uint32_t bytes);
std::string encode_steer(const supervisor::Steer& steer);

// Only of resize, signal and detach frames; nothing for a payload of another form.
std::optional<supervisor::Steer> decode_steer(const Frame& frame);
std::optional<std::uint32_t> decode_credit(const Frame& frame);

// Cuts bytes into frames. Holds at most one frame beyond what it was fed.
class FrameCutter {
public:
    explicit FrameCutter(std::size_t most_payload = kMostFrameBytes) : most_(most_payload) {}
    void feed(std::string_view bytes) { held_ += bytes; }
    // Nothing: more bytes are needed. corrupt: an unknown type or a payload over the limit.
    [[nodiscard]] Result<std::optional<Frame>> next();
    std::size_t held() const noexcept { return held_.size() - begin_; }

private:
    std::size_t most_;
    std::string held_;
    std::size_t begin_ = 0;
};

}  // namespace sandbox::control
