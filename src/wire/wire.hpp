// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "wire/helper.hpp"
#include "wire/init.hpp"
#include "wire/messages.hpp"
#include "wire/mux.hpp"
#include "wire/protocol.hpp"

// Encoding and decoding. Pure: no I/O, no clock; the static guest links it. Nothing throws but
// std::bad_alloc, and never for more than the ceiling of a message. No state: any thread may call
// anything here; a FrameDecoder belongs to one stream.
namespace sandbox::wire {

struct Header {
    std::uint8_t type = 0;
    std::uint32_t length = 0;  // of the payload
    bool operator==(const Header&) const = default;
};

// A frame whose payload is not decoded yet.
struct Frame {
    std::uint8_t type = 0;
    ByteVector payload;
    bool operator==(const Frame&) const = default;
};

using HeaderBytes = std::array<std::byte, kHeaderSize>;

// For senders that write stream bytes without copying them behind the header. Does not check: the
// length must be within the type's ceiling.
HeaderBytes encode_header(Header header) noexcept;

// Checks type, port, direction, stage and ceiling from the 5 bytes alone: unknown_type,
// type_not_allowed, too_long.
[[nodiscard]] Decoded<Header> decode_header(Port port, Direction direction, Stage stage,
                                            std::span<const std::byte, kHeaderSize> bytes) noexcept;

// A whole frame, header first. Code::invalid_argument when a field is over its ceiling or breaks a
// rule its receiver would refuse it for: what encodes also decodes. Defined for every message
// struct of messages.hpp, init.hpp (except the packets) and helper.hpp.
template <class M>
[[nodiscard]] Result<ByteVector> encode(const M& message);

template <class... M>
[[nodiscard]] Result<ByteVector> encode(const std::variant<M...>& message)
{
    return std::visit([](const auto& alternative) { return encode(alternative); }, message);
}

// SECRET without its value, which the sender adds from where it lies: no copy of it is made here.
// `secret.value` is not looked at. invalid_argument: the name breaks a rule, or the value is longer
// than kMaxSecretValue.
[[nodiscard]] Result<ByteVector> encode_secret_head(const Secret& secret, std::size_t value_size);

// A whole packet of the SEQPACKET channel: type byte and payload. For the messages of InitMessage.
// invalid_argument as encode(), also for more than kMaxInitPacket.
template <class M>
[[nodiscard]] Result<ByteVector> encode_packet(const M& message);

// Which port a variant's messages travel on: a receiver cannot ask for the wrong one.
template <class Messages>
inline constexpr Port kPortOf = Port::any;
template <>
inline constexpr Port kPortOf<ControlMessage> = Port::control;
template <>
inline constexpr Port kPortOf<SessionMessage> = Port::session;
template <>
inline constexpr Port kPortOf<EventMessage> = Port::events;
template <>
inline constexpr Port kPortOf<NetworkMessage> = Port::network;
template <>
inline constexpr Port kPortOf<BridgeMessage> = Port::bridge;
template <>
inline constexpr Port kPortOf<AgentMessage> = Port::ssh_agent;
template <>
inline constexpr Port kPortOf<InitMessage> = Port::init;
template <>
inline constexpr Port kPortOf<BootstrapMessage> = Port::bootstrap;
template <>
inline constexpr Port kPortOf<HelperMessage> = Port::helper;
template <>
inline constexpr Port kPortOf<MuxMessage> = Port::mux;

// Decodes one payload whose header was accepted. Strict: bad_payload for bytes missing or left
// over, bad bool, UTF-8 or tag, a field over its ceiling; version_mismatch before anything after
// the version is looked at. Defined for the variants named by kPortOf.
template <class Messages>
[[nodiscard]] Decoded<Messages> decode_as(Direction direction, std::uint8_t type,
                                          std::span<const std::byte> payload);

// The same with the port known only at run time. Pulls in every message: for tests and tools.
using Message =
    std::variant<ControlMessage, SessionMessage, EventMessage, NetworkMessage, BridgeMessage,
                 AgentMessage, InitMessage, BootstrapMessage, HelperMessage, MuxMessage>;
[[nodiscard]] Decoded<Message> decode_payload(Port port, Direction direction, std::uint8_t type,
                                              std::span<const std::byte> payload);

// One whole packet of the SEQPACKET channel. truncated: an empty one, which is how the channel's
// end reads.
[[nodiscard]] Decoded<InitMessage> decode_packet(Direction direction,
                                                 std::span<const std::byte> packet);

// The whole bootstrap record: exactly one frame, nothing behind it. The caller has checked that it
// is sealed.
[[nodiscard]] Decoded<Bootstrap> decode_bootstrap(std::span<const std::byte> record);

// Cuts a byte stream into frames. Holds at most one frame, grown as its bytes arrive, so a peer
// that announces 8 MiB and sends nothing costs nothing. After a failure it stays failed.
//   while (auto frame = TRY(decoder.next(input))) handle(*frame);
class FrameDecoder {
public:
    // `direction` is the way the bytes travel. Stage::later after a first frame that was checked
    // by check_first_frame.
    FrameDecoder(Port port, Direction direction, Stage stage = Stage::first) noexcept
        : port_(port), direction_(direction), stage_(stage)
    {
    }

    // Takes bytes off the front of `input` up to the end of one frame and returns it; nothing when
    // the input ran out first. Bytes behind a frame stay in `input` (raw bytes of a bridge).
    [[nodiscard]] Decoded<std::optional<Frame>> next(std::span<const std::byte>& input);

    // At end of stream: `truncated` inside a frame, fine between two.
    [[nodiscard]] Decoded<void> finish() const noexcept;

private:
    Port port_;
    Direction direction_;
    Stage stage_;
    std::size_t header_fill_ = 0;
    HeaderBytes header_bytes_{};
    Header header_{};
    ByteVector payload_;
    std::optional<Failure> failure_;
};

// What to do with a connection that a guest opened.
enum class FirstFrame : std::uint8_t {
    accepted,
    refused,  // close without a word and count it: the peer learns nothing
    version_mismatch,  // the nonce was right: answer ERROR version_mismatch, then close
};

// The first 39 bytes of a guest-opened connection (5002, 5003, 5005), looked at before anything is
// parsed: type and length, then the nonce in constant time, then the version.
FirstFrame check_first_frame(Port port, std::span<const std::byte, kFirstFrameSize> bytes,
                             const Nonce& expected) noexcept;

// Time does not depend on where the two differ, so that a guess cannot be improved byte by byte.
bool equal_in_constant_time(const Nonce& left, const Nonce& right) noexcept;

}  // namespace sandbox::wire
