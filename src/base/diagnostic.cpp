// SPDX-License-Identifier: Apache-2.0
#include "base/diagnostic.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <tuple>

#include "base/utf8.hpp"

namespace sandbox {

namespace {

std::size_t edit_distance(std::string_view a, std::string_view b)
{
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t above = row[j];
            const std::size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
            row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + cost});
            diagonal = above;
        }
    }
    return row[b.size()];
}

// Characters that reorder or hide text: bidirectional controls, zero-width and line separators.
bool is_deceptive(char32_t c)
{
    return (c >= 0x200B && c <= 0x200F) || (c >= 0x2028 && c <= 0x202E) ||
           (c >= 0x2060 && c <= 0x206F) || c == 0x061C || c == 0xFEFF ||
           (c >= 0xFFF9 && c <= 0xFFFB) || (c >= 0xE0000 && c <= 0xE007F);
}

}  // namespace

std::string escaped(std::string_view text)
{
    std::string out;
    out.reserve(text.size());
    std::array<char, 16> buffer{};
    for (std::size_t i = 0; i < text.size();) {
        const Utf8Char c = decode_utf8(text.substr(i));
        if (c.length == 0) {
            std::snprintf(buffer.data(), buffer.size(), "\\x%02x",
                          static_cast<unsigned>(static_cast<unsigned char>(text[i])));
            out += buffer.data();
            ++i;
            continue;
        }
        if (c.value < 0x20 || (c.value >= 0x7F && c.value < 0xA0)) {
            std::snprintf(buffer.data(), buffer.size(), "\\x%02x", static_cast<unsigned>(c.value));
            out += buffer.data();
        } else if (is_deceptive(c.value)) {
            std::snprintf(buffer.data(), buffer.size(), "\\u{%x}", static_cast<unsigned>(c.value));
            out += buffer.data();
        } else {
            out += text.substr(i, c.length);
        }
        i += c.length;
    }
    return out;
}

std::string format(const Diagnostic& diagnostic)
{
    std::string text = escaped(diagnostic.at.file);
    text += ':' + std::to_string(diagnostic.at.line) + ':' + std::to_string(diagnostic.at.column);
    text += ": ";
    if (!diagnostic.key.empty()) text += escaped(diagnostic.key) + ": ";
    text += escaped(diagnostic.message);
    if (!diagnostic.hint.empty()) text += " (" + escaped(diagnostic.hint) + ")";
    return text;
}

void sort(std::vector<Diagnostic>& diagnostics)
{
    std::stable_sort(diagnostics.begin(), diagnostics.end(),
                     [](const Diagnostic& a, const Diagnostic& b) {
                         return std::tie(a.at, a.key, a.code) < std::tie(b.at, b.key, b.code);
                     });
}

std::string_view nearest(std::string_view name, std::span<const std::string_view> candidates)
{
    constexpr std::size_t kMostEdits = 3;
    std::size_t best = std::min(kMostEdits, name.size() / 3 + 1) + 1;
    std::string_view found;
    for (const std::string_view candidate : candidates) {
        const std::size_t distance = edit_distance(name, candidate);
        if (distance < best) {
            best = distance;
            found = candidate;
        }
    }
    return found;
}

}  // namespace sandbox
