// SPDX-License-Identifier: Apache-2.0
#include <type_traits>

#include "fuzz.hpp"
#include "wire/wire.hpp"

// Payloads and packets of the guest protocol: what decodes encodes to the very same bytes, and a
// refusal says what it is about. Input: port, direction, type, payload.
namespace sandbox::fuzz {

namespace {

using wire::Direction;
using wire::Port;

constexpr std::array kMessagePorts{Port::control,   Port::session, Port::events,
                                   Port::network,   Port::bridge,  Port::ssh_agent,
                                   Port::bootstrap, Port::helper,  Port::init};

// A list of n items costs its n smallest encodings on the wire; the largest item in memory is
// below 256 bytes and the smallest encoding is 1 byte. Vectors double.
constexpr std::size_t kMostGrowth = 3 * 256;

template <class Messages>
Result<wire::ByteVector> encode_any(const Messages& message)
{
    if constexpr (std::is_same_v<Messages, wire::InitMessage>) {
        return std::visit([](const auto& one) { return wire::encode_packet(one); }, message);
    } else {
        return wire::encode(message);
    }
}

void check_payload(Port port, Direction direction, std::uint8_t type,
                   std::span<const std::byte> payload)
{
    const std::size_t before = allocated();
    const auto message = wire::decode_payload(port, direction, type, payload);
    HOLDS(allocated() - before <= 4096 + kMostGrowth * payload.size());
    if (!message) {
        HOLDS(std::string_view(message.error().what) != "");
        HOLDS(!wire::to_string(message.error().error).empty());
        return;
    }
    const auto encoded = std::visit([](const auto& messages) { return encode_any(messages); },
                                    *message);
    HOLDS(encoded.has_value());
    // A packet has the type byte in front, a frame the whole header.
    const std::size_t head = port == Port::init ? 1 : wire::kHeaderSize;
    HOLDS(encoded->size() == head + payload.size());
    HOLDS(std::to_integer<std::uint8_t>((*encoded)[head - 1]) == type);
    HOLDS(std::ranges::equal(std::span(*encoded).subspan(head), payload));
    const auto again = wire::decode_payload(port, direction, type,
                                            std::span(*encoded).subspan(head));
    HOLDS(again.has_value() && *again == *message);
}

void check_bootstrap(std::span<const std::byte> record)
{
    const auto boot = wire::decode_bootstrap(record);
    if (!boot) return;
    const auto encoded = wire::encode(*boot);
    HOLDS(encoded.has_value() && std::ranges::equal(*encoded, record));
}

}  // namespace

FUZZ_TARGET(message)
{
    Bytes bytes(input);
    const Port port = kMessagePorts[bytes.byte() % kMessagePorts.size()];
    const Direction direction = bytes.byte() % 2 == 0 ? Direction::to_guest : Direction::to_host;
    const std::span<const std::byte> packet = as_bytes(bytes.rest());
    const std::uint8_t type = bytes.byte();
    check_payload(port, direction, type, as_bytes(bytes.rest()));
    if (port == Port::bootstrap) check_bootstrap(packet);
    if (port == Port::init) {
        const auto whole = wire::decode_packet(direction, packet);
        const auto part = wire::decode_as<wire::InitMessage>(direction, type,
                                                             as_bytes(bytes.rest()));
        // The packet's ceiling counts the type byte.
        if (!packet.empty() && packet.size() <= wire::kMaxInitPacket) {
            HOLDS(whole.has_value() == part.has_value());
            HOLDS(!whole || *whole == *part);
        } else {
            HOLDS(!whole.has_value());
        }
    }
    if (packet.size() >= wire::kFirstFrameSize) {
        // A guest that does not know the nonce is refused before anything else is said.
        wire::Nonce nonce{};
        nonce.fill(0xA5);
        const auto first = packet.first<wire::kFirstFrameSize>();
        const bool knows = std::ranges::equal(first.last<wire::kNonceSize>(),
                                              std::as_bytes(std::span(nonce)));
        HOLDS(knows || wire::check_first_frame(port, first, nonce) == wire::FirstFrame::refused);
    }
}

}  // namespace sandbox::fuzz
