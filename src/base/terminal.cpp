// SPDX-License-Identifier: Apache-2.0
#include "base/terminal.hpp"

#include <algorithm>

#include "base/diagnostic.hpp"
#include "base/utf8.hpp"

namespace sandbox {

namespace {

constexpr std::size_t kLongestCharacter = 4;  // RFC 3629

std::size_t announced_length(unsigned char lead)
{
    if (lead < 0x80) return 1;
    if ((lead & 0xE0) == 0xC0) return 2;
    if ((lead & 0xF0) == 0xE0) return 3;
    if ((lead & 0xF8) == 0xF0) return 4;
    return 1;
}

// How many bytes at the end of `text` may be the start of an unfinished character.
std::size_t unfinished_tail(std::string_view text)
{
    for (std::size_t back = 1; back < kLongestCharacter && back <= text.size(); ++back) {
        const auto byte = static_cast<unsigned char>(text[text.size() - back]);
        if ((byte & 0xC0) == 0x80) continue;
        return announced_length(byte) > back ? back : 0;
    }
    return 0;
}

void append_safe(std::string& out, std::string_view text)
{
    while (!text.empty()) {
        const std::size_t end = std::min(text.find_first_of("\n\t"), text.size());
        out += escaped(text.substr(0, end));
        if (end == text.size()) return;
        out += text[end];
        text.remove_prefix(end + 1);
    }
}

}  // namespace

std::string TerminalSanitiser::feed(std::string_view chunk)
{
    std::string text = std::move(held_);
    held_.clear();
    text += chunk;
    std::size_t keep = unfinished_tail(text);
    if (keep == 0 && text.ends_with('\r')) keep = 1;
    held_ = text.substr(text.size() - keep);
    text.resize(text.size() - keep);

    // A carriage return right before a newline changes nothing on screen.
    std::string lines;
    lines.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
        lines += text[i];
    }
    std::string out;
    append_safe(out, lines);
    return out;
}

std::string TerminalSanitiser::finish()
{
    std::string out;
    append_safe(out, held_);
    held_.clear();
    return out;
}

}  // namespace sandbox
