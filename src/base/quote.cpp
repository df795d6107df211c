// SPDX-License-Identifier: Apache-2.0
#include "base/quote.hpp"

namespace sandbox {

void append_escaped(std::string& out, std::string_view text)
{
    static constexpr std::string_view kHex = "0123456789abcdef";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (byte < 0x20 || byte == 0x7F) {
            out += "\\u00";
            out += kHex[byte >> 4];
            out += kHex[byte & 15U];
        } else {
            out += c;
        }
    }
}

}  // namespace sandbox
