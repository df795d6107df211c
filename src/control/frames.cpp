// SPDX-License-Identifier: Apache-2.0
#include "control/frames.hpp"

namespace sandbox::control {

namespace {

// Big-endian, as the guest protocol; nothing here depends on the machine.
std::uint8_t byte_at(std::string_view bytes, std::size_t at)
{
    return static_cast<std::uint8_t>(bytes[at]);
}

std::uint32_t word_at(std::string_view bytes, std::size_t at)
{
    return std::uint32_t{byte_at(bytes, at)} << 24U | std::uint32_t{byte_at(bytes, at + 1)} << 16U |
           std::uint32_t{byte_at(bytes, at + 2)} << 8U | byte_at(bytes, at + 3);
}

std::uint16_t half_at(std::string_view bytes, std::size_t at)
{
    return static_cast<std::uint16_t>(byte_at(bytes, at) << 8U | byte_at(bytes, at + 1));
}

void put(std::string& bytes, std::uint32_t value, unsigned size)
{
    for (unsigned shift = size; shift-- > 0;) {
        bytes += static_cast<char>(static_cast<unsigned char>(value >> (shift * 8U)));
    }
}

bool is_known(std::uint8_t type)
{
    // Gaps between the three groups leave room; a new type is a new generation of the API.
    return (type >= 1 && type <= 7) || (type >= 16 && type <= 19) || type == 32 || type == 33;
}

}  // namespace

std::string encode_frame(FrameType type, std::string_view payload)
{
    std::string bytes;
    bytes.reserve(kFrameHeader + payload.size());
    put(bytes, static_cast<std::uint32_t>(payload.size()), 4);
    bytes += static_cast<char>(type);
    bytes += payload;
    return bytes;
}

std::string encode_credit(FrameType type, std::uint32_t bytes)
{
    std::string payload;
    put(payload, bytes, 4);
    return encode_frame(type, payload);
}

std::string encode_steer(const supervisor::Steer& steer)
{
    std::string payload;
    // Sizes of docs/api.md, Streams: a byte for a signal, two for rows and columns.
    switch (steer.kind) {
    case supervisor::Steer::Kind::signal:
        put(payload, static_cast<std::uint32_t>(steer.signal), 1);
        return encode_frame(FrameType::signal, payload);
    case supervisor::Steer::Kind::resize:
        put(payload, steer.rows, 2);
        put(payload, steer.cols, 2);
        return encode_frame(FrameType::resize, payload);
    case supervisor::Steer::Kind::detach: break;
    }
    return encode_frame(FrameType::detach, {});
}

std::optional<supervisor::Steer> decode_steer(const Frame& frame)
{
    using Kind = supervisor::Steer::Kind;
    if (frame.type == FrameType::signal && frame.payload.size() == 1) {
        const int number = byte_at(frame.payload, 0);
        // Checked here: the worker passes it on without a look.
        if (number < 1 || number > 64) return std::nullopt;  // signal(7): the last real-time one
        return supervisor::Steer{.kind = Kind::signal, .signal = number};
    }
    if (frame.type == FrameType::resize && frame.payload.size() == 4) {
        return supervisor::Steer{.kind = Kind::resize,
                                 .rows = half_at(frame.payload, 0),
                                 .cols = half_at(frame.payload, 2)};
    }
    if (frame.type == FrameType::detach && frame.payload.empty()) {
        return supervisor::Steer{.kind = Kind::detach};
    }
    return std::nullopt;
}

std::optional<std::uint32_t> decode_credit(const Frame& frame)
{
    // Two types, one form: each counts another direction.
    const bool credits = frame.type == FrameType::credit || frame.type == FrameType::taken;
    if (!credits || frame.payload.size() != 4) return std::nullopt;
    return word_at(frame.payload, 0);
}

Result<std::optional<Frame>> FrameCutter::next()
{
    // A view: nothing is copied until a frame is whole.
    const std::string_view rest = std::string_view(held_).substr(begin_);
    if (rest.size() < kFrameHeader) {
        // Only between frames: moving the rest to the front at each frame would be quadratic.
        held_.erase(0, begin_);
        begin_ = 0;
        return std::nullopt;
    }
    const std::size_t length = word_at(rest, 0);
    const std::uint8_t type = byte_at(rest, 4);
    // Before the length: an unknown type is not waited for.
    if (!is_known(type)) {
        return fail(Code::corrupt, "no frame has the type " + std::to_string(type));
    }
    // Before its bytes come: they are never waited for, nor held.
    if (length > most_) {
        return fail(Code::corrupt, "a frame of " + std::to_string(length) + " bytes, at most " +
                                       std::to_string(most_) + " are taken");
    }
    if (rest.size() < kFrameHeader + length) return std::nullopt;
    Frame frame{static_cast<FrameType>(type), std::string(rest.substr(kFrameHeader, length))};
    begin_ += kFrameHeader + length;
    return frame;
}

}  // namespace sandbox::control
