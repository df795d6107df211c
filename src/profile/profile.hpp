// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "canon/canon.hpp"
#include "profile/types.hpp"

// TOML -> typed profile. Everything wrong with a file is reported at once.
namespace sandbox::profile {

inline constexpr std::size_t kMostProfileBytes = 256U << 10;

struct ParsedProfile {
    std::optional<LocatedProfile> profile;  // nothing when there are errors
    std::vector<Diagnostic> diagnostics;    // sorted
};
// `file` only names the text in diagnostics.
ParsedProfile parse_profile(std::string_view toml, std::string_view file,
                            Schema schema = Schema::check);

// A fragment from a less trusted place. It may narrow; each refusal names the key.
ParsedProfile apply_overlay(const LocatedProfile& base, std::string_view toml,
                            std::string_view file);

// Normal form: every key present, defaults filled in. Round trip:
// from_json(to_json(p)) == p.
canon::Json to_json(const Profile& profile);
[[nodiscard]] Result<Profile> from_json(const canon::Json& json);

// "live", "next-start" or "replace", from the schema; the path is a key path without indices.
ChangeClass change_class(std::string_view key);

// The schemas as published: draft-7 JSON text. Names: "profile", "overlay", "bundle", "config",
// "snapshot", "plan", "audit", "guest"; empty when there is none of that name.
std::string_view schema(std::string_view name);

// Checks a JSON document against a published schema. Each failure is a diagnostic whose key is
// the path of the offending value.
std::vector<Diagnostic> check_schema(std::string_view schema_name, const canon::Json& document);

}  // namespace sandbox::profile
