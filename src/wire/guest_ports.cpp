// SPDX-License-Identifier: Apache-2.0
#include "wire/serialize.hpp"

// Ports 5002 to 5005: events, network, bridge, SSH agent.
namespace sandbox::wire {

// Reader and Writer want one each: a template parameter of a class template cannot be deduced
// through In.
template <class A, class M>
void visit_auth(A& a, M& m)
{
    a.version(m.version, kProtocolVersion);
    a.array("nonce", m.nonce);
}

// Overloads for the same reason.
template <std::uint8_t Type>
void visit(Reader& reader, AuthMessage<Type>& message)
{
    visit_auth(reader, message);
}

template <std::uint8_t Type>
void visit(Writer& writer, const AuthMessage<Type>& message)
{
    visit_auth(writer, message);
}

template <class A>
void visit(A& a, In<A, Heartbeat> m)
{
    a.number("seq", m.seq);
    a.number("uptime_ms", m.uptime_ms);
}

template <class A>
void visit(A& a, In<A, ServiceStateEvent> m)
{
    a.number("seq", m.seq);
    a.tag("state", m.state, ServiceState::not_started, ServiceState::waiting_to_restart);
    a.number("exit", m.exit);
    a.number("restarts", m.restarts);
}

template <class A>
void visit(A& a, In<A, GuestStateEvent> m)
{
    a.number("seq", m.seq);
    a.tag("kind", m.kind, GuestEvent::data_disk_formatted, GuestEvent::network_down);
    a.number("value", m.value);
}

template <class A>
void visit(A& a, In<A, NetReady> m)
{
    a.number("policy_generation", m.policy_generation);
}

template <class A>
void visit(A& a, In<A, BridgeOpen> m)
{
    a.version(m.version, kProtocolVersion);
    a.number("port", m.port);
    // Connecting to port 0 means nothing (RFC 6335, section 6: reserved).
    a.require(m.port != 0, "port");
}

template Result<ByteVector> encode(const EventAuth&);
template Result<ByteVector> encode(const Heartbeat&);
template Result<ByteVector> encode(const ServiceStateEvent&);
template Result<ByteVector> encode(const GuestStateEvent&);
template Result<ByteVector> encode(const NetAuth&);
template Result<ByteVector> encode(const NetReady&);
template Result<ByteVector> encode(const Packet&);
template Result<ByteVector> encode(const BridgeOpen&);
template Result<ByteVector> encode(const BridgeReady&);
template Result<ByteVector> encode(const AgentAuth&);
template Result<ByteVector> encode(const AgentReady&);
template Decoded<EventMessage> decode_as<EventMessage>(Direction, std::uint8_t,
                                                       std::span<const std::byte>);
template Decoded<NetworkMessage> decode_as<NetworkMessage>(Direction, std::uint8_t,
                                                           std::span<const std::byte>);
template Decoded<BridgeMessage> decode_as<BridgeMessage>(Direction, std::uint8_t,
                                                         std::span<const std::byte>);
template Decoded<AgentMessage> decode_as<AgentMessage>(Direction, std::uint8_t,
                                                       std::span<const std::byte>);

}  // namespace sandbox::wire
