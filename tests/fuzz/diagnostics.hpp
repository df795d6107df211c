// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fuzz.hpp"
#include "profile/types.hpp"

// What every reader of a person's file owes, whatever is in it.
namespace sandbox::fuzz {

inline constexpr const char* kFileName = "fuzz.toml";

inline bool lies_in(const SourceLocation& at, std::string_view toml)
{
    const auto lines = static_cast<std::size_t>(std::ranges::count(toml, '\n')) + 1;
    return at.file == kFileName && at.line >= 1 && at.line <= lines && at.column >= 1;
}

// Each is located in the file, has a stable code and prints on one safe line; all are in order.
inline void check_diagnostics(const std::vector<Diagnostic>& diagnostics, std::string_view toml)
{
    for (const Diagnostic& one : diagnostics) {
        HOLDS(toml.empty() || lies_in(one.at, toml));
        HOLDS(!one.code.empty() && !one.message.empty());
        HOLDS(is_safe_text(format(one), ""));
    }
    std::vector<Diagnostic> ordered = diagnostics;
    sort(ordered);
    HOLDS(ordered == diagnostics);
}

}  // namespace sandbox::fuzz
