// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "wire/messages.hpp"
#include "wire/protocol.hpp"

// The primitive pair under the messages. Both take the same calls, so that one description of a
// message (fields.hpp) serves both ways. Both are sticky: after the first failure nothing more is
// read or written, and the failure is reported once at the end.
namespace sandbox::wire {

template <class T>
concept WireInteger = std::integral<T> && !std::same_as<T, bool>;

// What a string may hold besides being valid UTF-8.
enum class Text : std::uint8_t {
    any,
    c_string,  // no NUL: it will be handed to the kernel as one
};

// Not a Result for each field: a message is described as a straight list, and looked at once at the
// end. Allocates nothing.
class FailureSlot {
public:
    bool failed() const noexcept { return failed_; }
    const Failure& failure() const noexcept { return failure_; }
    // The first failure stays.
    // `what` is a literal, kept as a pointer.
    void fail(WireError error, const char* what, std::uint64_t found = 0) noexcept;
    void require(bool holds, const char* what) noexcept
    {
        if (!holds) fail(WireError::bad_payload, what);
    }

protected:
    bool text_is_good(std::string_view text, std::size_t ceiling, Text rule, const char* what);

private:
    Failure failure_{};
    bool failed_ = false;
};

// Reads one payload. Once failed, getters leave zeros and empty values.
class Reader : public FailureSlot {
public:
    template <class T>
    using Ref = T&;

    // Requires: the bytes outlive the reader.
    explicit Reader(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}

    template <WireInteger T>
    void number(const char* what, T& value) noexcept
    {
        // Signed values travel as two's complement, of the same width.
        value = static_cast<T>(take_big_endian(what, sizeof(T)));
    }
    // One byte, 0 or 1.
    void boolean(const char* what, bool& value) noexcept;
    // No length before it: N is part of the layout.
    template <std::size_t N>
    void array(const char* what, std::array<std::uint8_t, N>& value) noexcept
    {
        const auto taken = take(what, N);
        for (std::size_t i = 0; i < taken.size(); ++i) {
            value[i] = std::to_integer<std::uint8_t>(taken[i]);
        }
    }
    // A u32 of bytes, then the text. The ceiling is in bytes, too.
    void text(const char* what, std::string& value, std::size_t ceiling, Text rule = Text::any);
    // The same without rules for the bytes.
    void blob(const char* what, ByteVector& value, std::size_t ceiling);
    void raw(ByteVector& value);
    // Requires: the enum's values are exactly first to last.
    template <class E>
        requires std::is_enum_v<E>
    void tag(const char* what, E& value, E first, E last) noexcept
    {
        const auto found = static_cast<std::uint8_t>(take_big_endian(what, 1));
        if (failed()) return;
        if (found < static_cast<std::uint8_t>(first) || found > static_cast<std::uint8_t>(last)) {
            return fail(WireError::bad_payload, what, found);
        }
        value = static_cast<E>(found);
    }
    // Checked before anything behind it is looked at: another version has another layout.
    void version(std::uint16_t& value, std::uint16_t ours) noexcept;
    // Grows as items arrive: a count alone reserves nothing.
    template <class T, class Item>
    void list(const char* what, std::vector<T>& items, std::size_t ceiling, Item item)
    {
        // A u16 of items.
        const std::uint64_t count = take_big_endian(what, 2);
        if (count > ceiling) return fail(WireError::bad_payload, what, count);
        items.clear();
        // Stops at the first item that is wrong, so a count of 65535 costs nothing.
        for (std::uint64_t i = 0; i < count && !failed(); ++i) item(*this, items.emplace_back());
    }
    // Bytes left over are an error.
    void finish() noexcept;

private:
    std::span<const std::byte> take(const char* what, std::size_t size) noexcept;
    std::uint64_t take_big_endian(const char* what, std::size_t size) noexcept;

    std::span<const std::byte> bytes_;
};

// Writes one payload behind what `out` holds. Refuses what a Reader would refuse; `out` is then of
// no use.
class Writer : public FailureSlot {
public:
    template <class T>
    using Ref = const T&;

    // Appends to `out`, which outlives the writer.
    explicit Writer(ByteVector& out) noexcept : out_(out) {}

    template <WireInteger T>
    void number(const char* /*what*/, T value)
    {
        put_big_endian(static_cast<std::uint64_t>(value), sizeof(T));
    }
    void boolean(const char* /*what*/, bool value) { put_big_endian(value ? 1 : 0, 1); }
    template <std::size_t N>
    void array(const char* /*what*/, const std::array<std::uint8_t, N>& value)
    {
        append(std::as_bytes(std::span(value)));
    }
    void text(const char* what, const std::string& value, std::size_t ceiling,
              Text rule = Text::any);
    void blob(const char* what, const ByteVector& value, std::size_t ceiling);
    void raw(const ByteVector& value) { append(value); }
    // An enum that was cast from anything else must not travel.
    template <class E>
        requires std::is_enum_v<E>
    void tag(const char* what, E value, E first, E last)
    {
        if (value < first || value > last) {
            return fail(WireError::bad_payload, what, static_cast<std::uint64_t>(value));
        }
        put_big_endian(static_cast<std::uint64_t>(value), 1);
    }
    // Another version is written as it stands: the receiver refuses it.
    void version(std::uint16_t value, std::uint16_t /*ours*/) { put_big_endian(value, 2); }
    template <class T, class Item>
    void list(const char* what, const std::vector<T>& items, std::size_t ceiling, Item item)
    {
        if (items.size() > ceiling) return fail(WireError::bad_payload, what, items.size());
        put_big_endian(items.size(), 2);
        for (const T& one : items) item(*this, one);
    }

private:
    void append(std::span<const std::byte> bytes);
    void put_big_endian(std::uint64_t value, std::size_t size);

    ByteVector& out_;
};

}  // namespace sandbox::wire
