// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <string>

#include "wire/serialize.hpp"
#include "wire/wire.hpp"

namespace sandbox::wire {

namespace {

// A frame's buffer starts no larger than this; it grows with the bytes that really came. What the
// largest structured messages need, usually.
constexpr std::size_t kFirstReserve = 64U << 10;

const TypeInfo* row_of(std::uint8_t type) noexcept
{
    // A search of so few rows costs nothing beside the system call that brought the frame.
    const auto rows = message_table();
    const auto row = std::ranges::find(rows, type, &TypeInfo::type);
    return row == rows.end() ? nullptr : &*row;
}

// For our own mistakes: a peer's bytes give a Failure, which allocates nothing.
Error encode_error(std::uint8_t type, std::string_view what, std::uint64_t found)
{
    const TypeInfo* row = row_of(type);
    std::string text = "cannot encode ";
    text += row == nullptr ? "a message" : row->name;
    text += ": ";
    text += what;
    text += " breaks the protocol's rule for it";
    if (found != 0) text += " (" + std::to_string(found) + ")";
    return Error(Code::invalid_argument, std::move(text));
}

}  // namespace

// 0 for an unknown type: nothing fits.
std::uint32_t ceiling_of(std::uint8_t type) noexcept
{
    const TypeInfo* row = row_of(type);
    return row == nullptr ? 0 : row->ceiling;
}

Result<ByteVector> seal_frame(std::uint8_t type, ByteVector frame, const FailureSlot& outcome)
{
    if (outcome.failed()) {
        return fail(encode_error(type, outcome.failure().what, outcome.failure().found));
    }
    const std::size_t length = frame.size() - kHeaderSize;
    // Only now is the length known; fields within their ceilings may together be too long.
    if (length > ceiling_of(type)) return fail(encode_error(type, "the whole payload", length));
    const HeaderBytes header = encode_header({type, static_cast<std::uint32_t>(length)});
    std::ranges::copy(header, frame.begin());
    return frame;
}

Result<ByteVector> seal_packet(std::uint8_t type, ByteVector packet, const FailureSlot& outcome)
{
    if (outcome.failed()) {
        return fail(encode_error(type, outcome.failure().what, outcome.failure().found));
    }
    if (packet.size() > kMaxInitPacket) {
        return fail(encode_error(type, "the whole packet", packet.size()));
    }
    return packet;
}

Decoded<void> admit(Port port, Direction direction, std::uint8_t type, std::size_t length) noexcept
{
    const TypeInfo* row = row_of(type);
    // Only "may this type come here at all": who decodes a payload has the order behind it.
    const Stage stage = row != nullptr && row->opens ? Stage::first : Stage::later;
    const auto found = look_up(port, direction, stage, type);
    if (!found) return std::unexpected(found.error());
    if (length > found->ceiling) {
        return std::unexpected(Failure{WireError::too_long, "length", length});
    }
    return {};
}

HeaderBytes encode_header(Header header) noexcept
{
    // As Writer would put it, without an allocation.
    return {static_cast<std::byte>(header.length >> 24),
            static_cast<std::byte>((header.length >> 16) & 0xFFU),
            static_cast<std::byte>((header.length >> 8) & 0xFFU),
            static_cast<std::byte>(header.length & 0xFFU), static_cast<std::byte>(header.type)};
}

Decoded<Header> decode_header(Port port, Direction direction, Stage stage,
                              std::span<const std::byte, kHeaderSize> bytes) noexcept
{
    // Five bytes are there, so these two cannot fail.
    Header header;
    Reader reader(bytes);
    reader.number("length", header.length);
    reader.number("type", header.type);
    const auto row = look_up(port, direction, stage, header.type);
    if (!row) return std::unexpected(row.error());
    // Before a byte of the payload is waited for.
    if (header.length > row->ceiling) {
        return std::unexpected(Failure{WireError::too_long, "length", header.length});
    }
    return header;
}

Decoded<std::optional<Frame>> FrameDecoder::next(std::span<const std::byte>& input)
{
    // A stream that was out of step once cannot be trusted to be in step again.
    if (failure_) return std::unexpected(*failure_);
    // Also a header may come in pieces.
    if (header_fill_ < kHeaderSize) {
        const std::size_t count = std::min(kHeaderSize - header_fill_, input.size());
        std::ranges::copy(input.first(count),
                          header_bytes_.begin() + static_cast<std::ptrdiff_t>(header_fill_));
        header_fill_ += count;
        input = input.subspan(count);
        if (header_fill_ < kHeaderSize) return std::nullopt;
        const auto header = decode_header(port_, direction_, stage_, header_bytes_);
        if (!header) {
            failure_ = header.error();
            return std::unexpected(header.error());
        }
        header_ = *header;
        payload_.reserve(std::min<std::size_t>(header_.length, kFirstReserve));
    }
    // Never more than the header announced: the next frame's bytes stay in `input`.
    const std::size_t count = std::min(header_.length - payload_.size(), input.size());
    payload_.insert(payload_.end(), input.begin(),
                    input.begin() + static_cast<std::ptrdiff_t>(count));
    input = input.subspan(count);
    if (payload_.size() < header_.length) return std::nullopt;
    Frame frame{header_.type, std::move(payload_)};
    // moved-from is unspecified: emptied by hand.
    payload_ = {};
    header_fill_ = 0;
    // From now on an opening frame is refused.
    stage_ = Stage::later;
    return frame;
}

Decoded<void> FrameDecoder::finish() const noexcept
{
    if (failure_) return std::unexpected(*failure_);
    // Between two frames is where a stream may end.
    if (header_fill_ == 0) return {};
    const std::uint64_t held = header_fill_ + payload_.size();
    return std::unexpected(Failure{WireError::truncated, "end of stream", held});
}

bool equal_in_constant_time(const Nonce& left, const Nonce& right) noexcept
{
    // volatile keeps the compiler from leaving the loop at the first difference.
    volatile std::uint8_t difference = 0;
    for (std::size_t i = 0; i < left.size(); ++i) {
        difference = static_cast<std::uint8_t>(difference | (left[i] ^ right[i]));
    }
    return difference == 0;
}

FirstFrame check_first_frame(Port port, std::span<const std::byte, kFirstFrameSize> bytes,
                             const Nonce& expected) noexcept
{
    // Only guests open with a nonce, so the direction is fixed.
    const auto header = decode_header(port, Direction::to_host, Stage::first,
                                      bytes.first<kHeaderSize>());
    const TypeInfo* row = header ? row_of(header->type) : nullptr;
    // 39 bytes exactly: another length is another message, or somebody who does not know the
    // protocol.
    if (row == nullptr || !row->opens || header->length != kFirstFrameSize - kHeaderSize) {
        return FirstFrame::refused;
    }
    std::uint16_t version = 0;
    Nonce presented{};
    Reader reader(bytes.subspan<kHeaderSize>());
    reader.number("version", version);
    reader.array("nonce", presented);
    // The nonce before the version: who does not have it learns nothing, not even which version we
    // speak.
    if (!equal_in_constant_time(presented, expected)) return FirstFrame::refused;
    if (version != kProtocolVersion) return FirstFrame::version_mismatch;
    return FirstFrame::accepted;
}

}  // namespace sandbox::wire
