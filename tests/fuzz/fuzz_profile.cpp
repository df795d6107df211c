// SPDX-License-Identifier: Apache-2.0
#include "canon/json.hpp"
#include "diagnostics.hpp"
#include "profile/profile.hpp"

// A profile: located diagnostics, or a value whose normal form reads back equal.
namespace sandbox::fuzz {

FUZZ_TARGET(profile)
{
    const profile::ParsedProfile parsed = profile::parse_profile(input, kFileName);
    check_diagnostics(parsed.diagnostics, input);
    HOLDS(parsed.profile.has_value() == parsed.diagnostics.empty());
    if (!parsed.profile) return;
    for (const auto& [key, at] : parsed.profile->where) HOLDS(lies_in(at, input));
    const profile::Profile& value = parsed.profile->profile;
    HOLDS(value.process.idle == value.process.argv.empty());
    const canon::Json normal = profile::to_json(value);
    const auto again = profile::from_json(normal);
    HOLDS(again.has_value() && *again == value);
    HOLDS(profile::to_json(*again) == normal);
    HOLDS(canon::serialize(normal).has_value());
    // Reading is a function of the bytes.
    HOLDS(profile::parse_profile(input, kFileName).profile->profile == value);
}

}  // namespace sandbox::fuzz
