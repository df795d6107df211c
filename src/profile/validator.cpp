// SPDX-License-Identifier: Apache-2.0
#include "profile/validator.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <mutex>
#include <set>
#include <utility>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-cast"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>
#pragma GCC diagnostic pop

#include "canon/json.hpp"
#include "profile/document.hpp"
#include "profile/embedded.hpp"

namespace sandbox::profile {

using canon::Json;
using valijson::adapters::NlohmannJsonAdapter;

struct CompiledSchema::State {
    valijson::Schema schema;
};

namespace {

// valijson names a place as {"<root>", "[process]", "[argv]", "[0]"}.
std::string path_of(const std::vector<std::string>& context, const Json& document)
{
    std::string path;
    const Json* at = &document;
    for (std::size_t i = 1; i < context.size(); ++i) {
        std::string_view step = context[i];
        // Without the brackets or the quotation marks that enclose it.
        if (step.size() >= 2) step = step.substr(1, step.size() - 2);
        if (at != nullptr && at->is_array()) {
            std::size_t index = 0;
            std::from_chars(step.data(), step.data() + step.size(), index);
            path = item_path(path, index);
            at = index < at->size() ? &(*at)[index] : nullptr;
        } else {
            path = member_path(path, step);
            // A place that is not there (a missing key) keeps its name and has no value.
            const auto found = at == nullptr || !at->is_object() ? Json::const_iterator()
                                                                 : at->find(std::string(step));
            at = at != nullptr && at->is_object() && found != at->end() ? &*found : nullptr;
        }
    }
    return path;
}

// More than there are; at() below fails loudly when there is one too many.
constexpr std::size_t kMostSchemas = 16;

// Lean and published, of one name. once_flag: the daemon validates in several threads.
struct Entry {
    std::once_flag parsed[2];
    std::once_flag compiled[2];
    Json json[2];
    std::unique_ptr<CompiledSchema> schema[2];
};

enum Variant : std::size_t { kLean, kPublished };

Entry* entry(std::string_view name, Variant variant)
{
    static std::array<Entry, kMostSchemas> entries;
    for (std::size_t i = 0; i < kEmbeddedSchemaCount; ++i) {
        const EmbeddedSchema& embedded = kEmbeddedSchemas[i];
        if (embedded.name != name) continue;
        Entry& found = entries.at(i);
        std::call_once(found.parsed[variant], [&] {
            // Of the program itself; it cannot be malformed, and a test parses each.
            found.json[variant] = Json::parse(variant == kLean ? embedded.lean
                                                               : embedded.published);
        });
        return &found;
    }
    return nullptr;
}

const Json* schema_json(std::string_view name, Variant variant)
{
    const Entry* found = entry(name, variant);
    return found == nullptr ? nullptr : &found->json[variant];
}

const CompiledSchema* compiled(std::string_view name, Variant variant)
{
    Entry* found = entry(name, variant);
    if (found == nullptr) return nullptr;
    // Apart from parsing: change_class() wants the JSON only, and compiling is the slow part.
    std::call_once(found->compiled[variant], [&] {
        found->schema[variant] = std::make_unique<CompiledSchema>(found->json[variant]);
    });
    return found->schema[variant].get();
}

}  // namespace

CompiledSchema::CompiledSchema(const Json& schema) : state_(std::make_unique<State>())
{
    valijson::SchemaParser parser(valijson::SchemaParser::kDraft7);
    // Throws for a schema that is none: ours are checked by tests.
    parser.populateSchema(NlohmannJsonAdapter(schema), state_->schema);
}

CompiledSchema::~CompiledSchema() = default;

std::vector<SchemaFailure> CompiledSchema::validate(const Json& document) const
{
    // Validator keeps state of a run: one for each.
    valijson::Validator validator;
    valijson::ValidationResults results;
    std::vector<SchemaFailure> failures;
    if (validator.validate(state_->schema, NlohmannJsonAdapter(document), &results)) {
        return failures;
    }
    std::set<std::pair<std::string, std::string>> seen;
    for (const auto& error : results) {
        SchemaFailure failure{path_of(error.context, document), error.description};
        // valijson reports most failures twice, once for the value and once for its parent.
        if (seen.emplace(failure.path, failure.text).second) {
            failures.push_back(std::move(failure));
        }
    }
    // Never empty for a document that does not obey: an empty list means that it does.
    if (failures.empty()) failures.push_back({"", "the document does not obey its schema"});
    return failures;
}

const Json* lean_schema(std::string_view name) { return schema_json(name, kLean); }
const Json* published_schema(std::string_view name) { return schema_json(name, kPublished); }
const CompiledSchema* lean_validator(std::string_view name) { return compiled(name, kLean); }
const CompiledSchema* published_validator(std::string_view name)
{
    return compiled(name, kPublished);
}

}  // namespace sandbox::profile
