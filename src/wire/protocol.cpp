// SPDX-License-Identifier: Apache-2.0
#include "wire/protocol.hpp"

#include <array>
#include <string>

namespace sandbox::wire {

namespace {

constexpr auto kToGuest = Direction::to_guest;
constexpr auto kToHost = Direction::to_host;
constexpr auto kBoth = Direction::both;
constexpr std::uint32_t kInitPayload = kMaxInitPacket - 1;  // the type byte counts

// docs/protocol.md in rows; golden files hold the bytes.
constexpr std::array<TypeInfo, 67> kTable{{
    {0x01, "HELLO", Port::control, kToGuest, kMaxHead, true},
    {0x02, "WELCOME", Port::control, kToHost, kMaxHead, false},
    {0x03, "PROVISION", Port::control, kToGuest, kMaxHead, false},
    {0x04, "PROVISIONED", Port::control, kToHost, kMaxHead, false},
    {0x05, "READY", Port::control, kToGuest, kMaxHead, false},
    {0x06, "READY_ACK", Port::control, kToHost, kMaxHead, false},
    {0x07, "TIME_SET", Port::control, kToGuest, kMaxHead, false},
    {0x08, "TIME_ACK", Port::control, kToHost, kMaxHead, false},
    {0x09, "ROTATE", Port::control, kToGuest, kMaxHead, false},
    {0x0A, "ROTATED", Port::control, kToHost, kMaxHead, false},
    {0x0B, "STATS_REQUEST", Port::control, kToGuest, kMaxHead, false},
    {0x0C, "STATS", Port::control, kToHost, kMaxHead, false},
    {0x0D, "POWEROFF", Port::control, kToGuest, kMaxHead, false},
    {0x0E, "POWEROFF_ACK", Port::control, kToHost, kMaxHead, false},
    {0x0F, "FSTRIM", Port::control, kToGuest, kMaxHead, false},
    {0x10, "FSTRIM_STARTED", Port::control, kToHost, kMaxHead, false},
    {0x11, "SECRET", Port::control, kToGuest, kMaxSecret, false},
    {0x12, "SECRET_KEPT", Port::control, kToHost, kMaxHead, false},
    {0x13, "SIGNAL_SESSION", Port::control, kToGuest, kMaxHead, false},
    {0x14, "SESSION_SIGNALED", Port::control, kToHost, kMaxHead, false},
    {0x20, "OPEN", Port::session, kToGuest, kMaxOpen, true},
    {0x21, "STARTED", Port::session, kToHost, kMaxHead, false},
    {0x22, "STDIN", Port::session, kToGuest, kMaxFrame, false},
    {0x23, "STDIN_EOF", Port::session, kToGuest, kMaxHead, false},
    {0x24, "STDOUT", Port::session, kToHost, kMaxFrame, false},
    {0x25, "STDERR", Port::session, kToHost, kMaxFrame, false},
    {0x26, "RESIZE", Port::session, kToGuest, kMaxHead, false},
    {0x27, "SIGNAL", Port::session, kToGuest, kMaxHead, false},
    {0x28, "SILENT", Port::session, kToHost, kMaxHead, false},
    {0x29, "EXIT", Port::session, kToHost, kMaxHead, false},
    {0x2A, "CONFINED", Port::session, kToHost, kMaxHead, false},
    {0x2B, "GO", Port::session, kToGuest, kMaxHead, false},
    {0x2C, "CLOSE_OUTPUT", Port::session, kToGuest, kMaxHead, false},
    {0x40, "EVENT_AUTH", Port::events, kToHost, kMaxHead, true},
    {0x41, "HEARTBEAT", Port::events, kToHost, kMaxHead, false},
    {0x42, "SERVICE_STATE", Port::events, kToHost, kMaxHead, false},
    {0x43, "GUEST_STATE", Port::events, kToHost, kMaxHead, false},
    {0x60, "NET_AUTH", Port::network, kToHost, kMaxHead, true},
    {0x61, "NET_READY", Port::network, kToGuest, kMaxHead, false},
    {0x62, "PACKET", Port::network, kBoth, kMaxPacket, false},
    {0x7F, "ERROR", Port::any, kBoth, kMaxHead, false},
    {0x80, "BRIDGE_OPEN", Port::bridge, kToGuest, kMaxHead, true},
    {0x81, "BRIDGE_READY", Port::bridge, kToHost, kMaxHead, false},
    {0xA0, "HELPER_HELLO", Port::helper, kToGuest, kMaxHead, true},
    {0xA1, "HELPER_WELCOME", Port::helper, kToHost, kMaxHead, false},
    {0xA2, "REQUEST", Port::helper, kToGuest, kMaxHead, false},
    {0xA3, "RESULT", Port::helper, kToHost, kMaxFrame, false},
    {0xA4, "REFUSAL", Port::helper, kToHost, kMaxHead, false},
    {0xC0, "AGENT_AUTH", Port::ssh_agent, kToHost, kMaxHead, true},
    {0xC1, "AGENT_READY", Port::ssh_agent, kToGuest, kMaxHead, false},
    {0xD0, "INIT_UP", Port::init, kToHost, kInitPayload, false},
    {0xD1, "PASS", Port::init, kToGuest, kInitPayload, false},
    {0xD2, "PASS_REFUSED", Port::init, kToHost, kInitPayload, false},
    {0xD3, "INIT_LOG", Port::init, kToHost, kInitPayload, false},
    {0xD4, "SESSION_OPENED", Port::init, kToHost, kInitPayload, false},
    {0xD5, "SESSION_ENDED", Port::init, kToHost, kInitPayload, false},
    {0xD6, "GUEST_FAULTY", Port::init, kToHost, kInitPayload, false},
    {0xD7, "GUEST_REPORT", Port::init, kToHost, kInitPayload, false},
    {0xE0, "BOOTSTRAP", Port::bootstrap, kToGuest, kMaxBootstrap, true},
    {0xE1, "MACHINE", Port::bootstrap, kToGuest, kMaxMachine, false},
    {0xF0, "MUX_HELLO", Port::mux, kBoth, kMaxHead, true},
    {0xF1, "MUX_OPEN", Port::mux, kBoth, kMaxHead, false},
    {0xF2, "MUX_ACCEPT", Port::mux, kBoth, kMaxHead, false},
    {0xF3, "MUX_DATA", Port::mux, kBoth, kMaxMuxPayload, false},
    {0xF4, "MUX_CREDIT", Port::mux, kBoth, kMaxHead, false},
    {0xF5, "MUX_EOF", Port::mux, kBoth, kMaxHead, false},
    {0xF6, "MUX_RESET", Port::mux, kBoth, kMaxHead, false},
}};

bool covers(Direction allowed, Direction asked) noexcept
{
    return allowed == Direction::both || allowed == asked;
}

// The side that connects speaks the opening frame; the other side may answer with anything its
// port allows it. The SEQPACKET channel is inherited, so nobody opens it.
bool opens_port(Port port, Direction direction) noexcept
{
    for (const TypeInfo& row : message_table()) {
        if (row.opens && row.port == port) return covers(row.direction, direction);
    }
    return false;
}

// What a caller does with it: the peer is broken (corrupt), or it works and says no.
Code code_of(WireError error) noexcept
{
    switch (error) {
    case WireError::not_ready:
    case WireError::not_provisioned: return Code::unavailable;
    case WireError::busy: return Code::resource_exhausted;
    case WireError::refused: return Code::permission_denied;
    default: return Code::corrupt;
    }
}

// For the operator: whole sentences; the literal and the number follow.
std::string_view explain(WireError error) noexcept
{
    switch (error) {
    case WireError::version_mismatch: return "the peer speaks another protocol version";
    case WireError::unknown_type: return "a frame type that is not in the protocol";
    case WireError::type_not_allowed: return "a frame type that may not come here now";
    case WireError::too_long: return "a frame longer than its type allows";
    case WireError::bad_payload: return "a payload that does not decode";
    case WireError::not_provisioned: return "the request needs provisioning first";
    case WireError::not_ready: return "the target does not accept a connection";
    case WireError::busy: return "the session limit is reached";
    case WireError::refused: return "a valid request that is not permitted";
    case WireError::truncated: return "the stream ended inside a frame";
    }
    return "unknown error";
}

}  // namespace

std::string_view to_string(WireError error) noexcept
{
    switch (error) {
    case WireError::version_mismatch: return "version_mismatch";
    case WireError::unknown_type: return "unknown_type";
    case WireError::type_not_allowed: return "type_not_allowed";
    case WireError::too_long: return "too_long";
    case WireError::bad_payload: return "bad_payload";
    case WireError::not_provisioned: return "not_provisioned";
    case WireError::not_ready: return "not_ready";
    case WireError::busy: return "busy";
    case WireError::refused: return "refused";
    case WireError::truncated: return "truncated";
    }
    return "unknown";
}

Failure::operator Error() const
{
    std::string text = "guest protocol: ";
    text += to_string(error);
    text += ": ";
    text += explain(error);
    text += " (";
    text += what;
    if (found != 0) {
        text += ", found ";
        text += std::to_string(found);
    }
    text += ")";
    return Error(code_of(error), std::move(text));
}

std::span<const TypeInfo> message_table() noexcept { return kTable; }

Decoded<TypeInfo> look_up(Port port, Direction direction, Stage stage, std::uint8_t type) noexcept
{
    // At most one row has the type, so the first answer is the answer.
    for (const TypeInfo& row : message_table()) {
        if (row.type != type) continue;
        // ERROR is the one type of every port.
        const bool here = row.port == port || row.port == Port::any;
        if (!here) {
            return std::unexpected(Failure{WireError::type_not_allowed, "type on its port", type});
        }
        if (!covers(row.direction, direction)) {
            return std::unexpected(Failure{WireError::type_not_allowed, "type direction", type});
        }
        // Only the side that opens has a first frame that must be special.
        const bool must_open = stage == Stage::first && opens_port(port, direction);
        if (row.opens != must_open) {
            return std::unexpected(Failure{WireError::type_not_allowed, "type order", type});
        }
        return row;
    }
    return std::unexpected(Failure{WireError::unknown_type, "type", type});
}

}  // namespace sandbox::wire
