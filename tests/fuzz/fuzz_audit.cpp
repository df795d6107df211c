// SPDX-License-Identifier: Apache-2.0
#include "audit/audit.hpp"
#include "canon/json.hpp"
#include "fuzz.hpp"
#include "profile/profile.hpp"

// One line of the audit log: refused as corrupt, or a record whose second writing is its first
// (unsafe text is escaped once), that is a good next line of a chain, prints as safe text, and obeys
// the published schema when what was read did.
namespace sandbox::fuzz {

FUZZ_TARGET(audit)
{
    const auto json = canon::parse(input);
    if (!json) return;
    const auto record = audit::record_from_json(*json);
    if (!record) {
        HOLDS(record.error().code() == Code::corrupt);
        return;
    }
    const canon::Json written = audit::to_json(*record);
    const auto again = audit::record_from_json(written);
    HOLDS(again.has_value() && audit::to_json(*again) == written);
    HOLDS(is_safe_text(audit::render(*record), "\n"));

    const auto line = audit::next_line({}, *record);
    HOLDS(line.has_value());
    HOLDS(line->text.find('\n') == std::string::npos);
    const bool published = profile::check_schema("audit", *json).empty();
    HOLDS(!published || profile::check_schema("audit", canon::parse(line->text).value()).empty());
    HOLDS(!audit::verify(line->text + "\n", line->head).has_value());
    HOLDS(audit::verify(line->text + "\n", {}).has_value());
}

}  // namespace sandbox::fuzz
