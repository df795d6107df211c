// SPDX-License-Identifier: Apache-2.0
#include "base/diagnostic.hpp"
#include "base/terminal.hpp"
#include "base/utf8.hpp"
#include "fuzz.hpp"

// Untrusted text for a terminal: the output lies in the safe set, is the same for every cut of the
// stream, a second pass changes nothing, and it grows by no more than an escape per byte.
// Input: seed of the cuts, then the text.
namespace sandbox::fuzz {

FUZZ_TARGET(terminal)
{
    Bytes bytes(input);
    std::uint32_t seed = bytes.byte();
    const std::string_view text = bytes.rest();

    TerminalSanitiser whole;
    std::string once = whole.feed(text);
    once += whole.finish();
    HOLDS(is_safe_text(once, "\n\t"));
    HOLDS(once.size() <= 10 * text.size());  // "\u{E0000}" for 4 bytes, "\x1B" for 1

    TerminalSanitiser second;
    std::string twice = second.feed(once);
    twice += second.finish();
    HOLDS(twice == once);

    TerminalSanitiser pieces;
    std::string joined;
    for (std::string_view rest = text; !rest.empty();) {
        seed = seed * 1664525U + 1013904223U;  // Numerical Recipes, chapter 7
        const std::string_view piece = rest.substr(0, 1 + (seed >> 30));
        joined += pieces.feed(piece);
        rest.remove_prefix(piece.size());
    }
    joined += pieces.finish();
    HOLDS(joined == once);

    const std::string line = escaped(text);
    HOLDS(is_safe_text(line, ""));
    HOLDS(escaped(line) == line);
    const bool printable = std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
    if (printable) HOLDS(line == text && once == text);
    HOLDS(is_valid_utf8(text) || line != text);
}

}  // namespace sandbox::fuzz
