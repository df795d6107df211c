// SPDX-License-Identifier: Apache-2.0
#include "wire/mux.hpp"

#include "wire/serialize.hpp"

namespace sandbox::wire {

template <class A>
void visit_window(A& a, In<A, std::uint32_t> window)
{
    a.number("window", window);
    // 0 would be a stream on which nothing can ever be said.
    a.require(window >= 1 && window <= kMaxMuxWindow, "window");
}

template <class A>
void visit(A& a, In<A, MuxHello> m)
{
    a.version(m.version, kProtocolVersion);
    visit_window(a, m.window);
}

template <class A>
void visit(A& a, In<A, MuxOpen> m)
{
    a.number("stream", m.stream);
    a.number("port", m.port);
    visit_window(a, m.window);
    a.text("session", m.session, 64, Text::c_string);
    // It is there already.
    a.require(m.stream != kInitStream, "stream");
}

template <class A>
void visit(A& a, In<A, MuxAccept> m)
{
    a.number("stream", m.stream);
    visit_window(a, m.window);
}

template <class A>
void visit(A& a, In<A, MuxData> m)
{
    a.number("stream", m.stream);
    a.raw(m.bytes);
    // An empty DATA would cost work and no credit: a flood for free.
    a.require(!m.bytes.empty(), "bytes");
}

template <class A>
void visit(A& a, In<A, MuxCredit> m)
{
    a.number("stream", m.stream);
    a.number("bytes", m.bytes);
    // For the same reason.
    a.require(m.bytes >= 1 && m.bytes <= kMaxMuxWindow, "bytes");
}

template <class A>
void visit(A& a, In<A, MuxEof> m)
{
    a.number("stream", m.stream);
}

template <class A>
void visit(A& a, In<A, MuxReset> m)
{
    a.number("stream", m.stream);
    a.number("code", m.code);
}

template Result<ByteVector> encode(const MuxHello&);
template Result<ByteVector> encode(const MuxOpen&);
template Result<ByteVector> encode(const MuxAccept&);
template Result<ByteVector> encode(const MuxData&);
template Result<ByteVector> encode(const MuxCredit&);
template Result<ByteVector> encode(const MuxEof&);
template Result<ByteVector> encode(const MuxReset&);
template Decoded<MuxMessage> decode_as<MuxMessage>(Direction, std::uint8_t,
                                                   std::span<const std::byte>);

}  // namespace sandbox::wire
