// SPDX-License-Identifier: Apache-2.0
#include "canon/json.hpp"
#include "facts/facts.hpp"
#include "fuzz.hpp"
#include "profile/profile.hpp"

// A saved capability snapshot: refused as corrupt, or it obeys the published schema, its values
// read back equal, and a fact that is not `ok` gives no value.
namespace sandbox::fuzz {

FUZZ_TARGET(snapshot)
{
    const auto json = canon::parse(input);
    if (!json) return;
    const auto snapshot = facts::snapshot_from_json(*json);
    if (!snapshot) {
        HOLDS(snapshot.error().code() == Code::corrupt);
        return;
    }
    HOLDS(profile::check_schema("snapshot", *json).empty());
    const canon::Json written = facts::to_json(*snapshot);
    const auto again = facts::snapshot_from_json(written);
    HOLDS(again.has_value() && *again == *snapshot);
    HOLDS(canon::serialize(written).has_value());
    for (const auto& [name, fact] : snapshot->facts()) {
        const bool usable = fact.status == facts::FactStatus::ok;
        HOLDS(snapshot->ok(name) == usable);
        HOLDS(usable || snapshot->value(name).empty());
    }
    HOLDS(!snapshot->ok("no.such.fact"));
}

}  // namespace sandbox::fuzz
