// SPDX-License-Identifier: Apache-2.0
#include "wire/wire.hpp"

namespace sandbox::wire {

namespace {

template <class Messages>
Decoded<Message> decode_on(Direction direction, std::uint8_t type,
                           std::span<const std::byte> payload)
{
    return Message(TRY(decode_as<Messages>(direction, type, payload)));
}

}  // namespace

// For tests and tools: a real receiver knows its port at compile time.
Decoded<Message> decode_payload(Port port, Direction direction, std::uint8_t type,
                                std::span<const std::byte> payload)
{
    switch (port) {
    case Port::control: return decode_on<ControlMessage>(direction, type, payload);
    case Port::session: return decode_on<SessionMessage>(direction, type, payload);
    case Port::events: return decode_on<EventMessage>(direction, type, payload);
    case Port::network: return decode_on<NetworkMessage>(direction, type, payload);
    case Port::bridge: return decode_on<BridgeMessage>(direction, type, payload);
    case Port::ssh_agent: return decode_on<AgentMessage>(direction, type, payload);
    case Port::init: return decode_on<InitMessage>(direction, type, payload);
    case Port::bootstrap: return decode_on<BootstrapMessage>(direction, type, payload);
    case Port::helper: return decode_on<HelperMessage>(direction, type, payload);
    case Port::mux: return decode_on<MuxMessage>(direction, type, payload);
    // No channel is "any"; ERROR comes on a port.
    case Port::any: break;
    }
    return std::unexpected(Failure{WireError::type_not_allowed, "port"});
}

}  // namespace sandbox::wire
