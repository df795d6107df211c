// SPDX-License-Identifier: Apache-2.0
#include "fuzz.hpp"
#include "wire/wire.hpp"

// A byte stream of one port: the same frames however it is cut, nothing above a ceiling, memory in
// proportion to what came, and the frames written again are the bytes that were read.
// Input: port, direction, seed of one way to cut it, then the stream.
namespace sandbox::fuzz {

namespace {

using wire::Direction;
using wire::Port;

constexpr std::array kFramePorts{Port::control,   Port::session, Port::events,
                                 Port::network,   Port::bridge,  Port::ssh_agent,
                                 Port::bootstrap, Port::helper,  Port::mux};

struct Outcome {
    std::vector<wire::Frame> frames;
    std::optional<wire::Failure> failure;
    bool operator==(const Outcome&) const = default;
};

struct Stream {
    Port port;
    Direction direction;
    std::span<const std::byte> bytes;
};

// `next_size` says how long the next piece is.
template <class NextSize>
Outcome read_stream(const Stream& stream, NextSize next_size)
{
    Outcome outcome;
    wire::FrameDecoder decoder(stream.port, stream.direction);
    std::span<const std::byte> rest = stream.bytes;
    while (!rest.empty()) {
        std::span<const std::byte> piece = rest.first(
            std::clamp<std::size_t>(next_size(), 1, rest.size()));
        rest = rest.subspan(piece.size());
        while (true) {
            auto frame = decoder.next(piece);
            if (!frame) {
                outcome.failure = frame.error();
                HOLDS(decoder.finish().error() == frame.error());
                HOLDS(!decoder.next(rest).has_value());
                return outcome;
            }
            if (!*frame) break;
            outcome.frames.push_back(std::move(**frame));
        }
        HOLDS(piece.empty());
    }
    if (const auto end = decoder.finish(); !end) outcome.failure = end.error();
    return outcome;
}

void check_frames(const Stream& stream, const Outcome& outcome)
{
    std::size_t at = 0;
    bool first = true;
    for (const wire::Frame& frame : outcome.frames) {
        const auto row = wire::look_up(stream.port, stream.direction,
                                       first ? wire::Stage::first : wire::Stage::later, frame.type);
        HOLDS(row.has_value() && frame.payload.size() <= row->ceiling);
        const auto header = wire::encode_header(
            {frame.type, static_cast<std::uint32_t>(frame.payload.size())});
        HOLDS(std::ranges::equal(header, stream.bytes.subspan(at, header.size())));
        at += header.size();
        HOLDS(std::ranges::equal(frame.payload, stream.bytes.subspan(at, frame.payload.size())));
        at += frame.payload.size();
        first = false;
    }
    HOLDS(outcome.failure.has_value() || at == stream.bytes.size());
}

// Frames are dropped as they come, so that what is counted is the decoder's own.
void check_memory(const Stream& stream)
{
    constexpr std::size_t kReserve = 64U << 10;  // what one announced frame may reserve
    const std::size_t before = allocated();
    wire::FrameDecoder decoder(stream.port, stream.direction);
    std::span<const std::byte> rest = stream.bytes;
    while (true) {
        const auto frame = decoder.next(rest);
        if (!frame || !*frame) break;
    }
    HOLDS(allocated() - before <= kReserve + 3 * stream.bytes.size());
}

}  // namespace

FUZZ_TARGET(frame)
{
    Bytes bytes(input);
    const Port port = kFramePorts[bytes.byte() % kFramePorts.size()];
    const Direction direction = bytes.byte() % 2 == 0 ? Direction::to_guest : Direction::to_host;
    std::uint32_t seed = bytes.byte();
    const Stream stream{port, direction, as_bytes(bytes.rest())};

    const Outcome whole = read_stream(stream, [&] { return stream.bytes.size(); });
    check_frames(stream, whole);
    check_memory(stream);
    HOLDS(read_stream(stream, [] { return std::size_t{1}; }) == whole);
    HOLDS(read_stream(stream, [&] {
              seed = seed * 1664525U + 1013904223U;  // Numerical Recipes, chapter 7
              return std::size_t{seed >> 28};
          }) == whole);
    if (stream.bytes.size() > 64) return;
    for (std::size_t cut = 1; cut < stream.bytes.size(); ++cut) {
        bool first = true;
        const auto next = [&] { return std::exchange(first, false) ? cut : stream.bytes.size(); };
        HOLDS(read_stream(stream, next) == whole);
    }
}

}  // namespace sandbox::fuzz
