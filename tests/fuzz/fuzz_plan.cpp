// SPDX-License-Identifier: Apache-2.0
#include "canon/json.hpp"
#include "fuzz.hpp"
#include "plan/codec.hpp"
#include "profile/profile.hpp"

// A plan file: refused as corrupt, or byte for byte what encode writes. The content is decoded
// apart from the digest too, else no mutation would get past it.
namespace sandbox::fuzz {

namespace {

// The profile inside keeps the code of its own reader.
void check_refusal(const Error& error)
{
    HOLDS(error.code() == Code::corrupt || error.code() == Code::invalid_argument);
}

void check_content(const canon::Json& file)
{
    if (!file.is_object() || !file.contains("plan")) return;
    const auto content = plan::content_from_json(file["plan"]);
    if (!content) {
        check_refusal(content.error());
        return;
    }
    HOLDS(plan::content_json(*content) == file["plan"]);
    auto sealed = plan::ExecutionPlan::seal(*content);
    HOLDS(sealed.has_value());
    const auto bytes = plan::encode_file(*sealed);
    HOLDS(bytes.has_value());
    const auto back = plan::decode_file(*bytes);
    HOLDS(back.has_value() && back->digest() == sealed->digest());
    HOLDS(back->content() == *content);
    const bool published = profile::check_schema("plan", file).empty();
    HOLDS(!published || profile::check_schema("plan", canon::parse(*bytes).value()).empty());
    HOLDS(plan::diff(*back, *sealed).empty());
    HOLDS(is_safe_text(plan::render_table(*sealed), "\n"));
}

}  // namespace

FUZZ_TARGET(plan)
{
    const auto decoded = plan::decode_file(input);
    if (decoded) {
        HOLDS(plan::encode_file(*decoded) == input);
        HOLDS(decoded->digest().str() == canon::digest(decoded->canonical()));
    } else {
        check_refusal(decoded.error());
    }
    if (const auto json = canon::parse(input)) check_content(*json);
}

}  // namespace sandbox::fuzz
