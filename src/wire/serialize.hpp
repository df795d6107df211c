// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "wire/codec.hpp"
#include "wire/wire.hpp"

// The template bodies behind encode() and decode_as(). Only the .cpp files of this folder include
// it; each describes its messages as `visit(archive, message)` and instantiates what it owns, so
// that a program links only the ports it speaks.
namespace sandbox::wire {

// Reader wants a reference, Writer a const one: one description serves both.
template <class A, class M>
using In = typename A::template Ref<M>;

// Found by argument-dependent look-up from encode() and decode_alternative(): declared before both.
template <class A, std::uint8_t Type>
void visit(A& /*archive*/, const EmptyMessage<Type>& /*message*/)
{
}

template <std::uint8_t Type>
void visit(Reader& reader, RawMessage<Type>& message)
{
    reader.raw(message.bytes);
}

template <std::uint8_t Type>
void visit(Writer& writer, const RawMessage<Type>& message)
{
    writer.raw(message.bytes);
}

template <class A, class M>
void visit_error(A& a, M& m)
{
    a.number("code", m.code);
    a.text("detail", m.detail, 256);
}
inline void visit(Reader& reader, ErrorMessage& message) { visit_error(reader, message); }
inline void visit(Writer& writer, const ErrorMessage& message) { visit_error(writer, message); }

template <class A>
void visit_env(A& a, const char* what, In<A, std::vector<EnvPair>> env, std::size_t items,
               std::size_t value_ceiling)
{
    a.list(what, env, items, [what, value_ceiling](auto& archive, auto& pair) {
        // 128: a longer name is nobody's.
        archive.text(what, pair.first, 128, Text::c_string);
        archive.text(what, pair.second, value_ceiling, Text::c_string);
        archive.require(!pair.first.empty() && pair.first.find('=') == std::string::npos, what);
    });
}

template <class A>
void visit_rlimits(A& a, In<A, std::vector<Rlimit>> rlimits)
{
    constexpr std::uint8_t kResources = 16;  // RLIM_NLIMITS
    a.list("rlimits", rlimits, kResources, [](auto& archive, auto& limit) {
        archive.number("rlimits.resource", limit.resource);
        archive.number("rlimits.value", limit.value);
        archive.require(limit.resource < kResources, "rlimits.resource");
    });
}

template <class A>
void visit_ids(A& a, const char* what, In<A, std::vector<std::uint32_t>> ids, std::size_t ceiling)
{
    a.list(what, ids, ceiling, [what](auto& archive, auto& id) { archive.number(what, id); });
}

// Non-template helpers shared by every instantiation, to keep the static guest small.
std::uint32_t ceiling_of(std::uint8_t type) noexcept;
[[nodiscard]] Result<ByteVector> seal_frame(std::uint8_t type, ByteVector frame,
                                            const FailureSlot& outcome);
[[nodiscard]] Result<ByteVector> seal_packet(std::uint8_t type, ByteVector packet,
                                             const FailureSlot& outcome);

template <class M>
[[nodiscard]] Result<ByteVector> encode(const M& message)
{
    // Room for the header, whose length is not known yet.
    ByteVector frame(kHeaderSize);
    Writer writer(frame);
    visit(writer, message);
    return seal_frame(M::kType, std::move(frame), writer);
}

template <class M>
[[nodiscard]] Result<ByteVector> encode_packet(const M& message)
{
    ByteVector packet(1, std::byte{M::kType});
    Writer writer(packet);
    visit(writer, message);
    return seal_packet(M::kType, std::move(packet), writer);
}

template <class Messages, std::size_t I = 0>
Decoded<Messages> decode_alternative(std::uint8_t type, std::span<const std::byte> payload)
{
    // The end of the variant: not a type of this port.
    if constexpr (I == std::variant_size_v<Messages>) {
        return std::unexpected(Failure{WireError::unknown_type, "type", type});
    } else {
        using M = std::variant_alternative_t<I, Messages>;
        // Recursion at compile time; at run time a chain of comparisons.
        if (type != M::kType) return decode_alternative<Messages, I + 1>(type, payload);
        M message{};
        Reader reader(payload);
        visit(reader, message);
        reader.finish();
        if (reader.failed()) return std::unexpected(reader.failure());
        return Messages(std::in_place_index<I>, std::move(message));
    }
}

// Type, port, direction and ceiling; the order of frames is the stream's business.
Decoded<void> admit(Port port, Direction direction, std::uint8_t type, std::size_t length) noexcept;

// Both: the table says whether it may come, the variant how it looks.
template <class Messages>
Decoded<Messages> decode_as(Direction direction, std::uint8_t type,
                            std::span<const std::byte> payload)
{
    TRY_VOID(admit(kPortOf<Messages>, direction, type, payload.size()));
    return decode_alternative<Messages>(type, payload);
}

}  // namespace sandbox::wire
