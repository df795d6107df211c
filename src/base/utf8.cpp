// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.hpp"

#include <array>

namespace sandbox {

Utf8Char decode_utf8(std::string_view bytes) noexcept
{
    const auto lead = static_cast<unsigned char>(bytes[0]);
    if (lead < 0x80) return {lead, 1};
    std::size_t length = 0;
    char32_t value = 0;
    if ((lead & 0xE0) == 0xC0) {
        length = 2;
        value = lead & 0x1FU;
    } else if ((lead & 0xF0) == 0xE0) {
        length = 3;
        value = lead & 0x0FU;
    } else if ((lead & 0xF8) == 0xF0) {
        length = 4;
        value = lead & 0x07U;
    } else {
        return {};
    }
    if (bytes.size() < length) return {};
    for (std::size_t i = 1; i < length; ++i) {
        const auto next = static_cast<unsigned char>(bytes[i]);
        if ((next & 0xC0) != 0x80) return {};
        value = (value << 6) | (next & 0x3FU);
    }
    constexpr std::array<char32_t, 5> kSmallest{0, 0, 0x80, 0x800, 0x10000};
    if (value < kSmallest.at(length) || value > 0x10FFFF) return {};
    if (value >= 0xD800 && value <= 0xDFFF) return {};
    return {value, length};
}

bool is_valid_utf8(std::string_view bytes) noexcept
{
    while (!bytes.empty()) {
        const std::size_t length = decode_utf8(bytes).length;
        if (length == 0) return false;
        bytes.remove_prefix(length);
    }
    return true;
}

}  // namespace sandbox
