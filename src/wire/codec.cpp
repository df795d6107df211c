// SPDX-License-Identifier: Apache-2.0
#include "wire/codec.hpp"

#include <algorithm>

#include "base/utf8.hpp"

// Everything that is read here may come from inside a sandbox: lengths are compared before anything
// is allocated or copied.
namespace sandbox::wire {

void FailureSlot::fail(WireError error, const char* what, std::uint64_t found) noexcept
{
    // Later ones follow from it: after a wrong length every field is wrong.
    if (failed_) return;
    failed_ = true;
    failure_ = Failure{error, what, found};
}

bool FailureSlot::text_is_good(std::string_view text, std::size_t ceiling, Text rule,
                               const char* what)
{
    // The writer checks the same: what encodes also decodes.
    if (text.size() > ceiling) {
        fail(WireError::bad_payload, what, text.size());
        return false;
    }
    // A NUL inside would cut the text where the kernel reads it, after it was checked as a whole.
    const bool nul = rule == Text::c_string && text.find('\0') != std::string_view::npos;
    if (nul || !is_valid_utf8(text)) {
        fail(WireError::bad_payload, what);
        return false;
    }
    return true;
}

std::span<const std::byte> Reader::take(const char* what, std::size_t size) noexcept
{
    // Never more than is there, so no field can reach behind its payload.
    if (!failed() && size > bytes_.size()) fail(WireError::bad_payload, what);
    if (failed()) return {};
    const auto taken = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return taken;
}

std::uint64_t Reader::take_big_endian(const char* what, std::size_t size) noexcept
{
    // Byte by byte: no alignment, and the same on every machine.
    std::uint64_t value = 0;
    for (const std::byte byte : take(what, size)) {
        value = (value << 8) | std::to_integer<std::uint64_t>(byte);
    }
    return value;
}

void Reader::boolean(const char* what, bool& value) noexcept
{
    const std::uint64_t found = take_big_endian(what, 1);
    // Strict: two encodings of one message would let a digest or a log disagree with what was
    // meant.
    if (found > 1) fail(WireError::bad_payload, what, found);
    value = found == 1;
}

void Reader::text(const char* what, std::string& value, std::size_t ceiling, Text rule)
{
    const std::uint64_t length = take_big_endian(what, 4);
    // Before take(): a length from outside is a number, not yet a size.
    if (length > ceiling) return fail(WireError::bad_payload, what, length);
    const auto taken = take(what, length);
    if (failed()) return;
    // std::byte and char may alias; the view lives as long as the bytes.
    const std::string_view view(reinterpret_cast<const char*>(taken.data()), taken.size());
    if (text_is_good(view, ceiling, rule, what)) value = view;
}

void Reader::blob(const char* what, ByteVector& value, std::size_t ceiling)
{
    const std::uint64_t length = take_big_endian(what, 4);
    if (length > ceiling) return fail(WireError::bad_payload, what, length);
    const auto taken = take(what, length);
    value.assign(taken.begin(), taken.end());
}

// All that is left: only as a message's last field.
void Reader::raw(ByteVector& value)
{
    if (failed()) return;
    value.assign(bytes_.begin(), bytes_.end());
    bytes_ = {};
}

// Before the rest: another version's payload must not be looked at.
void Reader::version(std::uint16_t& value, std::uint16_t ours) noexcept
{
    number("version", value);
    if (value != ours) fail(WireError::version_mismatch, "version", value);
}

void Reader::finish() noexcept
{
    // Ignored bytes would be a place to hide things in, and a way for versions to drift apart.
    if (!bytes_.empty()) fail(WireError::bad_payload, "trailing bytes", bytes_.size());
}

void Writer::text(const char* what, const std::string& value, std::size_t ceiling, Text rule)
{
    if (!text_is_good(value, ceiling, rule, what)) return;
    put_big_endian(value.size(), 4);
    append(std::as_bytes(std::span(value)));
}

void Writer::blob(const char* what, const ByteVector& value, std::size_t ceiling)
{
    if (value.size() > ceiling) return fail(WireError::bad_payload, what, value.size());
    put_big_endian(value.size(), 4);
    raw(value);
}

void Writer::append(std::span<const std::byte> bytes)
{
    // Not insert(): inlined, GCC 12 warns of an overrun that cannot happen (-Warray-bounds).
    const std::size_t at = out_.size();
    out_.resize(at + bytes.size());
    std::ranges::copy(bytes, out_.begin() + static_cast<std::ptrdiff_t>(at));
}

// Most significant first, as network protocols have it (docs/protocol.md).
void Writer::put_big_endian(std::uint64_t value, std::size_t size)
{
    for (std::size_t shift = size * 8; shift > 0; shift -= 8) {
        out_.push_back(static_cast<std::byte>((value >> (shift - 8)) & 0xFFU));
    }
}

}  // namespace sandbox::wire
