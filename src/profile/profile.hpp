// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "canon/canon.hpp"
#include "profile/types.hpp"

// TOML -> typed profile. Everything wrong with a file is reported at once, as diagnostics and not
// as an Error. Pure: no file is read here, no clock and no environment. Any thread may call any of
// these.
namespace sandbox::profile {

// 256 KiB. A profile that a person writes has a few; the bound is for memory and time of the
// parser.
inline constexpr std::size_t kMostProfileBytes = 256U << 10;

// Exactly one of the two: a profile, or at least one diagnostic.
struct ParsedProfile {
    std::optional<LocatedProfile> profile;  // nothing when there are errors
    std::vector<Diagnostic> diagnostics;    // sorted
};
// `file` only names the text in diagnostics. Hostile text is expected, from whoever may write
// profiles.
ParsedProfile parse_profile(std::string_view toml, std::string_view file,
                            Schema schema = Schema::check);

// A fragment from a less trusted place. It may narrow; each refusal names the key, and with one of
// them there is no profile at all. `base` is not changed.
ParsedProfile apply_overlay(const LocatedProfile& base, std::string_view toml,
                            std::string_view file);

// Normal form: every key present, defaults filled in. Round trip: from_json(to_json(p)) == p.
// corrupt: not in normal form (unknown keys, another spelling, wrong types); invalid_argument: in
// normal form, and check() refuses it.
canon::Json to_json(const Profile& profile);
[[nodiscard]] Result<Profile> from_json(const canon::Json& json);

// "live", "next-start" or "replace", from the schema's x-change-class; the path is a key path, with
// or without indices. Inner keys inherit from the table around them.
ChangeClass change_class(std::string_view key);

// The schemas as published: draft-7 JSON text (json-schema.org), part of the program. Names:
// "profile", "overlay", "bundle", "config", "snapshot", "plan", "audit", "guest"; empty when there
// is none of that name.
std::string_view schema(std::string_view name);

// Checks a JSON document against a published schema. Each failure is a diagnostic whose key is the
// path of the offending value; empty when it obeys. Slower than the readers: for tests and tools.
std::vector<Diagnostic> check_schema(std::string_view schema_name, const canon::Json& document);

}  // namespace sandbox::profile
