// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "canon/json.hpp"
#include "profile/types.hpp"

// TOML -> JSON values and the place of each key. The only user of toml++.
// The rest of the program sees JSON values: one kind of document for schema, reader and explainer.
namespace sandbox::profile {

// Nobody reads more, and the work for a hostile file stays bounded: each complaint searches the
// list.
inline constexpr std::size_t kMostDiagnostics = 500;

struct Document {
    bool parsed = false;  // false: only diagnostics
    canon::Json json;     // an object; TOML dates become strings
    Locations where;      // "" is the whole file
    std::vector<Diagnostic> diagnostics;
};

// Refuses more than kMostProfileBytes, invalid UTF-8, NUL, and nan, inf and dates as values
// ("valid_until" may be a date). A syntax error ends the reading: it is then the only diagnostic.
// Never fails otherwise: everything is in `diagnostics`. `file` is copied.
Document read_toml(std::string_view toml, std::string_view file);

// The path of a member: `parent.name`, quoted where the name is not a bare TOML key.
// parent[index], as diagnostics and Locations spell it.
std::string member_path(std::string_view parent, std::string_view name);
std::string item_path(std::string_view parent, std::size_t index);

// What the schema says against the document, in words for people, added to its diagnostics: unknown
// keys with the nearest valid name, wrong types, enum typos, bounds. `accepted_elsewhere` names a
// schema whose keys are known but not allowed here (an overlay's view of "profile"); may be empty.
// Does nothing for a document that did not parse.
void check_document(Document& document, std::string_view schema_name,
                    std::string_view accepted_elsewhere = {});

}  // namespace sandbox::profile
