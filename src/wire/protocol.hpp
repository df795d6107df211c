// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <span>
#include <string_view>

#include "base/error.hpp"

// The vocabulary of the guest protocol: versions, ceilings, ports, types and error codes.
// docs/protocol.md is the byte-level page; golden files in tests/golden/wire hold it. Any change to
// a layout, code, ceiling or port bumps kProtocolVersion in the same commit: shim and guest of one
// sandbox are always of one release, so there is no negotiation.
namespace sandbox::wire {

inline constexpr std::uint16_t kProtocolVersion = 3;
inline constexpr std::uint16_t kHelperVersion = 1;  // of the privileged helper, counted apart

// Ceilings of the payload, checked against the 5 header bytes before anything is allocated.
inline constexpr std::uint32_t kMaxHead = 8U << 10;  // structured messages
inline constexpr std::uint32_t kMaxFrame = 8U << 20;  // stream bytes on port 5001
inline constexpr std::uint32_t kMaxPacket = 65535;  // one IP packet on port 5003
inline constexpr std::uint32_t kMaxOpen = 1U << 20;  // OPEN: agents pass whole scripts
inline constexpr std::uint32_t kMaxSecret = 72U << 10;  // one secret's name and value
inline constexpr std::uint32_t kMaxBootstrap = 256U << 10;  // the record PID 1 reads once
inline constexpr std::uint32_t kMaxMachine = 1U << 20;  // the tree and limits of a guest
inline constexpr std::uint32_t kMaxMuxPayload = 32772;  // stream number and bytes of DATA
inline constexpr std::uint32_t kMaxInitPacket = 4U << 10;  // one SEQPACKET message, type included

inline constexpr std::size_t kHeaderSize = 5;  // length u32, type u8
inline constexpr std::size_t kMaxSecretValue = 64U << 10;
inline constexpr std::size_t kNonceSize = 32;  // every nonce and token
// 5 + 2 + 32.
inline constexpr std::size_t kFirstFrameSize = 39;  // header, version u16, nonce
inline constexpr std::size_t kMaxItem = 128U << 10;  // one argv item or env value of OPEN

// Deadlines of docs/protocol.md, in milliseconds. kLivenessMs: two heartbeats that did not come,
// and half of one more for delay.
inline constexpr std::uint32_t kReplyDeadlineMs = 10'000;
inline constexpr std::uint32_t kHeartbeatMs = 30'000;
inline constexpr std::uint32_t kSilentMs = 30'000;
inline constexpr std::uint32_t kLivenessMs = 75'000;
// Of one sandbox, the service among them.
inline constexpr std::uint16_t kMaxSessions = 256;

// Where a message may travel. The numbers of the first six are the vsock ports; the rest are
// channels without one and never appear in a CONNECT line.
enum class Port : std::uint16_t {
    any = 0,  // ERROR only
    init = 1,  // SEQPACKET between shim and sandbox-init
    bootstrap = 2,  // the sealed memfd that sandbox-init reads once
    helper = 3,  // the privileged helper; "guest" is then the helper
    mux = 4,  // the one link into a guest of its own kernel
    control = 5000,  // opened by the host, HELLO first
    session = 5001,  // opened by the host, OPEN first; one session a connection
    events = 5002,  // opened by the guest, EVENT_AUTH first
    network = 5003,  // opened by the guest, NET_AUTH first
    bridge = 5004,  // opened by the host, BRIDGE_OPEN first, raw bytes after BRIDGE_READY
    ssh_agent = 5005,  // opened by the guest, AGENT_AUTH first, raw bytes after AGENT_READY
};

// "host" is the side that has the sandbox, "guest" what is inside.
enum class Direction : std::uint8_t { to_guest = 1, to_host = 2, both = 3 };

// 1 to 9 travel in ERROR. `truncated` is local: the stream ended inside a frame.
enum class WireError : std::uint16_t {
    version_mismatch = 1,
    unknown_type = 2,
    type_not_allowed = 3,
    too_long = 4,
    bad_payload = 5,
    not_provisioned = 6,
    not_ready = 7,
    busy = 8,
    refused = 9,
    truncated = 256,
};
std::string_view to_string(WireError error) noexcept;

// Why bytes were not taken. Allocates nothing: `what` is a literal naming the field or rule,
// `found` the offending number where there is one; no text of the peer is kept. Converts to the
// project's Error (corrupt, unavailable, resource_exhausted or permission_denied), so TRY works in
// functions returning Result.
struct Failure {
    WireError error = WireError::bad_payload;
    const char* what = "";
    std::uint64_t found = 0;

    operator Error() const;  // NOLINT(google-explicit-constructor): one way up for TRY
    // Only the error: tests compare it, the words may change.
    bool operator==(const Failure& other) const noexcept { return error == other.error; }
};

template <class T>
using Decoded = std::expected<T, Failure>;

// One row of the message table.
struct TypeInfo {
    std::uint8_t type;
    std::string_view name;  // as docs/protocol.md spells it
    Port port;
    Direction direction;
    std::uint32_t ceiling;  // of the payload
    bool opens;  // the opener's first frame, and never a later one
};

// Sorted by type; constant.
std::span<const TypeInfo> message_table() noexcept;

enum class Stage : std::uint8_t {
    first,  // nothing came from this peer yet on this connection
    later,
};

// The row for a type arriving on a port. unknown_type, type_not_allowed (other port, other
// direction, an opening frame that is not first, or a first frame that does not open).
[[nodiscard]] Decoded<TypeInfo> look_up(Port port, Direction direction, Stage stage,
                                        std::uint8_t type) noexcept;

}  // namespace sandbox::wire
