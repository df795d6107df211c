// SPDX-License-Identifier: Apache-2.0
#include "fuzz.hpp"
#include "wire/mux_engine.hpp"

// One side of a mux against a peer that says anything, in frames that are mostly well formed: the
// same verdict however the bytes are cut, nothing held beyond the windows, a failure that is final,
// and an answer that another engine would take from a peer in good faith.
// Input: side, seed of the cuts, then operations of five bytes.
namespace sandbox::fuzz {

namespace {

using wire::MuxEngine;
using wire::StreamId;

constexpr wire::MuxLimits kLimits{4096, 4096};
constexpr std::size_t kMostStreams = wire::kMaxMuxHostStreams + wire::kMaxMuxGuestStreams;

template <class M>
void append(wire::ByteVector& all, const M& message)
{
    if (const auto frame = wire::encode(message))
        all.insert(all.end(), frame->begin(), frame->end());
}

// What the peer says next: small numbers, so that frames meet the streams there are.
void append_frame(wire::ByteVector& all, Bytes& input)
{
    const std::uint8_t kind = input.byte();
    const StreamId stream = input.byte() % 12;
    const std::uint32_t amount = static_cast<std::uint32_t>(input.byte()) * 37 + input.byte();
    switch (kind % 9) {
    case 0: return append(all, wire::MuxOpen{stream, 5001, 1 + amount, "s"});
    case 1: return append(all, wire::MuxAccept{stream, 1 + amount});
    case 2:
    case 3: return append(all, wire::MuxData{stream, wire::ByteVector(1 + amount % 3000)});
    case 4: return append(all, wire::MuxCredit{stream, 1 + amount});
    case 5: return append(all, wire::MuxEof{stream});
    case 6: return append(all, wire::MuxReset{stream, static_cast<std::uint16_t>(amount % 3)});
    case 7: return append(all, wire::MuxHello{wire::kProtocolVersion, 1 + amount});
    default:  // nonsense behind a header that is none
        for (int i = 0; i < 7; ++i) all.push_back(std::byte{input.byte()});
    }
}

struct Script {
    struct Turn {
        wire::ByteVector said;  // by the peer
        std::uint8_t act = 0;  // of ours, after it
        StreamId stream = 0;
        std::size_t amount = 0;
    };
    wire::MuxSide side = wire::MuxSide::host;
    std::vector<Turn> turns;
};

Script read_script(Bytes& input)
{
    Script script;
    script.side = input.byte() % 2 == 0 ? wire::MuxSide::host : wire::MuxSide::guest;
    bool first = input.byte() % 8 != 0;  // mostly a peer that greets
    while (!input.empty() && script.turns.size() < 200) {
        Script::Turn turn;
        if (std::exchange(first, false))
            append(turn.said, wire::MuxHello{wire::kProtocolVersion, 4096});
        append_frame(turn.said, input);
        turn.act = input.byte() % 8;
        turn.stream = turn.act / 2 + script.turns.size() % 4;
        turn.amount = turn.said.size();
        script.turns.push_back(std::move(turn));
    }
    return script;
}

void act(MuxEngine& engine, const Script::Turn& turn)
{
    switch (turn.act) {
    case 0: static_cast<void>(engine.open(5001, "s")); break;
    case 1: engine.accept(turn.stream); break;
    case 2: engine.write(turn.stream, wire::ByteVector(turn.amount)); break;
    case 3: engine.finish(turn.stream); break;
    case 4: engine.consume(turn.stream, turn.amount); break;
    case 5: engine.close(turn.stream); break;
    case 6: engine.close(turn.stream, 9); break;
    default: break;
    }
}

struct Outcome {
    wire::ByteVector said;
    std::size_t events = 0;
    std::optional<wire::Failure> failure;
    bool operator==(const Outcome&) const = default;
};

void check_bounds(const MuxEngine& engine)
{
    HOLDS(engine.open_streams() <= kMostStreams);
    for (StreamId stream = 0; stream < 12; ++stream) {
        HOLDS(engine.readable(stream).size() <= kLimits.window);
        HOLDS(engine.room(stream) <= kLimits.send_buffer);
    }
}

// `cut` says where the peer's bytes are cut within one turn.
template <class Cut>
Outcome play(const Script& script, Cut cut)
{
    Outcome outcome;
    MuxEngine engine(script.side, kLimits);
    for (const Script::Turn& turn : script.turns) {
        std::span<const std::byte> rest(turn.said);
        while (!rest.empty() && !outcome.failure) {
            const std::size_t count = std::clamp<std::size_t>(cut(), 1, rest.size());
            if (const auto fed = engine.feed(rest.first(count)); !fed)
                outcome.failure = fed.error();
            rest = rest.subspan(count);
        }
        if (outcome.failure) {
            HOLDS(!engine.feed(turn.said));
            break;
        }
        while (engine.next_event()) ++outcome.events;
        act(engine, turn);
        check_bounds(engine);
        for (auto bytes = engine.output(); !bytes.empty(); bytes = engine.output()) {
            outcome.said.insert(outcome.said.end(), bytes.begin(), bytes.end());
            engine.sent(bytes.size());
        }
    }
    return outcome;
}

// Everything we said is a row of whole frames that decode, HELLO first.
void check_said(const Script& script, const wire::ByteVector& said)
{
    const auto direction = script.side == wire::MuxSide::host ? wire::Direction::to_guest
                                                              : wire::Direction::to_host;
    wire::FrameDecoder decoder(wire::Port::mux, direction);
    std::span<const std::byte> rest(said);
    while (!rest.empty()) {
        const auto frame = decoder.next(rest);
        HOLDS(frame.has_value() && frame->has_value());
        HOLDS(wire::decode_as<wire::MuxMessage>(direction, (*frame)->type, (*frame)->payload)
                  .has_value());
    }
}

}  // namespace

FUZZ_TARGET(mux)
{
    Bytes bytes(input);
    std::uint32_t seed = bytes.byte();
    const Script script = read_script(bytes);
    const Outcome whole = play(script, [] { return std::size_t{1} << 20; });
    check_said(script, whole.said);
    HOLDS(play(script, [] { return std::size_t{1}; }) == whole);
    HOLDS(play(script, [&] {
              seed = seed * 1664525U + 1013904223U;  // Numerical Recipes, chapter 7
              return std::size_t{seed >> 24};
          }) == whole);
}

}  // namespace sandbox::fuzz
