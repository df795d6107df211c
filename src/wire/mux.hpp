// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "wire/messages.hpp"

// Frames of the one connection that leads into a guest: many streams on it, each with its own
// credit. docs/protocol.md, "Mux". The engine that speaks them is mux_engine.hpp.
namespace sandbox::wire {

// Never used again on one link: a late frame cannot hit another stream.
using StreamId = std::uint32_t;

// There from the start, never opened, ended only with the link: what passes beside the ports.
inline constexpr StreamId kInitStream = 0;
inline constexpr std::size_t kMuxDataHeader = 4;  // the stream, before the bytes of DATA
inline constexpr std::uint32_t kMaxMuxData = kMaxMuxPayload - kMuxDataHeader;  // bytes of one DATA
inline constexpr std::uint32_t kMaxMuxWindow = 1U << 20;  // credit that may be outstanding
// Open at a time, by who opened them. 256 sessions; control, events, and streams that wait for the
// other side's RESET.
inline constexpr std::size_t kMaxMuxHostStreams = 272;
inline constexpr std::size_t kMaxMuxGuestStreams = 16;

// First frame of each side. Another version is refused before anything else is looked at.
struct MuxHello {
    static constexpr std::uint8_t kType = 0xF0;
    std::uint16_t version = kProtocolVersion;
    std::uint32_t window = 0;  // first credit of stream 0; 1 to kMaxMuxWindow
    bool operator==(const MuxHello&) const = default;
};
// The host's streams are odd, the guest's even; each one above all of its side before it.
struct MuxOpen {
    static constexpr std::uint8_t kType = 0xF1;
    StreamId stream = 0;
    std::uint32_t port = 0;
    std::uint32_t window = 0;  // first credit of the other side
    std::string session;  // 64; empty for ports that run no session
    bool operator==(const MuxOpen&) const = default;
};
// By the side that did not open it; until then nothing but RESET may come on it.
struct MuxAccept {
    static constexpr std::uint8_t kType = 0xF2;
    StreamId stream = 0;
    std::uint32_t window = 0;
    bool operator==(const MuxAccept&) const = default;
};
// At most the credit that is left; more ends the link.
struct MuxData {
    static constexpr std::uint8_t kType = 0xF3;
    StreamId stream = 0;
    ByteVector bytes;  // the rest of the payload, 1 to kMaxMuxData
    bool operator==(const MuxData&) const = default;
};
// For what was consumed, not for what came: who does not read is not sent more.
struct MuxCredit {
    static constexpr std::uint8_t kType = 0xF4;
    StreamId stream = 0;
    std::uint32_t bytes = 0;  // more; not 0
    bool operator==(const MuxCredit&) const = default;
};
// Half close: no DATA follows from this side.
struct MuxEof {
    static constexpr std::uint8_t kType = 0xF5;
    StreamId stream = 0;
    bool operator==(const MuxEof&) const = default;
};
// Last frame of a side for this stream, and it takes nothing more. Answered by the other side's;
// then the stream is forgotten. Before ACCEPT it is a refusal.
struct MuxReset {
    static constexpr std::uint8_t kType = 0xF6;
    StreamId stream = 0;
    std::uint16_t code = 0;  // 0: all was said, deliver it; else a WireError, and what lies unread
        // may be dropped
    bool operator==(const MuxReset&) const = default;
};

using MuxMessage = std::variant<MuxHello, MuxOpen, MuxAccept, MuxData, MuxCredit, MuxEof, MuxReset>;

}  // namespace sandbox::wire
