// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sandbox {

// A place in a file a person wrote. Lines and columns start at 1; 0 means unknown.
struct SourceLocation {
    std::string file;
    std::uint32_t line = 0;
    std::uint32_t column = 0;

    bool operator==(const SourceLocation&) const = default;
    auto operator<=>(const SourceLocation&) const = default;
};

// A user's mistake: not an Error. All of them are collected before anything is refused.
struct Diagnostic {
    std::string code;     // stable, kebab-case: "unknown-key", "duplicate-key", "bad-unit", ...
    std::string key;      // key path as the user writes it: mount[1].source
    SourceLocation at;
    std::string message;  // what was wanted and what was found
    std::string hint;     // what to do next; may be empty

    bool operator==(const Diagnostic&) const = default;
};

// "FILE:LINE:COL: KEY: message (hint)", control characters escaped.
std::string format(const Diagnostic& diagnostic);

// Stable order: file, line, column, key, code.
void sort(std::vector<Diagnostic>& diagnostics);

// The candidate with the smallest edit distance to `name`, empty when none is close enough
// (at most a third of the name, and never more than three edits).
std::string_view nearest(std::string_view name, std::span<const std::string_view> candidates);

// Replaces control characters, DEL, C1, BiDi controls and invalid UTF-8 by visible escapes (\xNN,
// \u{NNNN}), so that untrusted text cannot drive a terminal or forge a line. Idempotent; newline
// and tab are escaped too.
std::string escaped(std::string_view text);

}  // namespace sandbox
