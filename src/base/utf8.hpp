// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace sandbox {

// One decoded character. `length` is 0 when the bytes are not valid UTF-8 (RFC 3629: no
// over-long forms, no surrogates, nothing above U+10FFFF).
struct Utf8Char {
    char32_t value = 0;
    std::size_t length = 0;
};

// Requires: bytes is not empty.
Utf8Char decode_utf8(std::string_view bytes) noexcept;

bool is_valid_utf8(std::string_view bytes) noexcept;

}  // namespace sandbox
