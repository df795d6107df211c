// SPDX-License-Identifier: Apache-2.0
#include "canon/json.hpp"
#include "fuzz.hpp"

// JSON from outside: a document is refused as corrupt, or has one canonical form that parses back
// equal, is stable and holds no white space outside strings.
namespace sandbox::fuzz {

namespace {

std::size_t depth_of(const canon::Json& value)
{
    if (!value.is_structured()) return 0;
    std::size_t deepest = 0;
    for (const canon::Json& item : value) deepest = std::max(deepest, depth_of(item));
    return deepest + 1;
}

bool is_compact(std::string_view json)
{
    bool inside = false;
    for (std::size_t i = 0; i < json.size(); ++i) {
        const char c = json[i];
        if (inside && c == '\\') {
            ++i;
        } else if (c == '"') {
            inside = !inside;
        } else if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
            if (!inside || c != ' ') return false;
        }
    }
    return !inside;
}

}  // namespace

FUZZ_TARGET(canon)
{
    constexpr canon::Limits kLimits{.bytes = 4096, .depth = 16};
    const auto value = canon::parse(input, kLimits);
    if (!value) {
        HOLDS(value.error().code() == Code::corrupt);
        return;
    }
    HOLDS(input.size() <= kLimits.bytes && depth_of(*value) <= kLimits.depth);
    const auto text = canon::serialize(*value);
    HOLDS(text.has_value());
    HOLDS(is_compact(*text));
    const auto again = canon::parse(*text, {.bytes = text->size(), .depth = kLimits.depth});
    HOLDS(again.has_value() && *again == *value);
    HOLDS(canon::serialize(*again) == *text);
    HOLDS(canon::is_digest(canon::digest(*text)));
}

}  // namespace sandbox::fuzz
