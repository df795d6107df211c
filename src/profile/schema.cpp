// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "base/utf8.hpp"
#include "canon/json.hpp"
#include "profile/check.hpp"
#include "profile/document.hpp"
#include "profile/embedded.hpp"
#include "profile/names.hpp"
#include "profile/profile.hpp"
#include "profile/validator.hpp"

// valijson decides whether a document obeys; what stands here says why in words for people. So a
// hole in these explanations can make a message poor, and never a bad document good.
namespace sandbox::profile {

using canon::Json;

namespace {

std::string kind_of(const Json& value)
{
    switch (value.type()) {
    case Json::value_t::null: return "nothing";
    case Json::value_t::boolean: return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned: return "an integer";
    case Json::value_t::number_float: return "a number with a fraction";
    case Json::value_t::string: return "a string";
    case Json::value_t::array: return "an array";
    case Json::value_t::object: return "a table";
    // Types of nlohmann that no text can give.
    case Json::value_t::binary:
    case Json::value_t::discarded: break;
    }
    return "something else";
}

std::string name_of_type(std::string_view type)
{
    if (type == "object") return "a table";
    if (type == "array") return "an array";
    if (type == "integer") return "an integer";
    if (type == "null") return "nothing";
    return "a " + std::string(type);
}

bool has_type(const Json& value, std::string_view type)
{
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    if (type == "boolean") return value.is_boolean();
    return type == "null" && value.is_null();
}

// A value as it would be written, cut to what fits in a line.
std::string shown(const Json& value)
{
    constexpr std::size_t kMost = 48;
    // "replace": a broken byte in a value must not throw while an error is being told.
    std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() <= kMost) return text;
    std::size_t end = kMost;
    // Not inside a character: 10xxxxxx are the bytes that continue one (RFC 3629).
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80) --end;
    return text.substr(0, end) + "…";
}

std::size_t characters(std::string_view text)
{
    std::size_t count = 0;
    for (std::size_t i = 0; i < text.size(); ++count) {
        // A byte that is no character counts as one, so that the loop ends.
        i += std::max<std::size_t>(1, decode_utf8(text.substr(i)).length);
    }
    return count;
}

std::string listed(const std::vector<std::string_view>& names)
{
    std::string text;
    for (const std::string_view name : names) {
        if (!text.empty()) text += ", ";
        text += name;
    }
    return text;
}

// Walks schema and document together. Knows the keywords that our schemas use, no others: a rule
// without words here still comes out as valijson's.
class Explainer {
public:
    Explainer(Document& document, const Json* elsewhere)
        : document_(document), elsewhere_(elsewhere)
    {
    }

    void explain(const Json& schema, const Json& value, const std::string& path)
    {
        // One complaint for a value of the wrong type; its bounds mean nothing then.
        if (!type_fits(schema, value, path)) return;
        choices(schema, value, path);
        if (value.is_number()) bounds(schema, value, path);
        if (value.is_string()) length(schema, value, path);
        if (value.is_array()) items(schema, value, path);
        if (value.is_object()) members(schema, value, path);
    }

private:
    void refuse(std::string code, const std::string& path, std::string message,
                std::string hint = {})
    {
        // Here, because what follows searches the list.
        if (document_.diagnostics.size() >= kMostDiagnostics) return;
        document_.diagnostics.push_back({std::move(code), path, locate(document_.where, path),
                                         std::move(message), std::move(hint)});
    }

    bool already_refused(const std::string& path) const
    {
        return std::any_of(document_.diagnostics.begin(), document_.diagnostics.end(),
                           [&](const Diagnostic& diagnostic) { return diagnostic.key == path; });
    }

    bool type_fits(const Json& schema, const Json& value, const std::string& path)
    {
        const auto found = schema.find("type");
        if (found == schema.end()) return true;
        const Json types = found->is_array() ? *found : Json::array({*found});
        std::string wanted;
        for (const Json& type : types) {
            const auto& name = type.get_ref<const std::string&>();
            if (has_type(value, name)) return true;
            wanted += (wanted.empty() ? "" : " or ") + name_of_type(name);
        }
        // A value that was refused while it was read stands here as null.
        if (value.is_null() && already_refused(path)) return false;
        std::string hint;
        if (wanted == "a string" && value.is_number()) {
            hint = "write it between quotation marks: \"" + shown(value) + "\"";
        } else if (value.is_string() &&
                   (wanted == "an integer" || wanted == "a number" || wanted == "a boolean")) {
            hint = "write it without quotation marks";
        } else if (wanted == "an array" && value.is_object() &&
                   path.find('.') == std::string::npos) {
            // Only at the top: there [[x]] is the spelling; elsewhere a list of tables is written
            // inline.
            hint = "write [[" + path + "]] instead of [" + path + "]";
        } else if (wanted == "an array") {
            hint = "write [" + shown(value) + "]";
        }
        refuse("bad-type", path, "wants " + wanted + ", found " + kind_of(value), std::move(hint));
        return false;
    }

    void choices(const Json& schema, const Json& value, const std::string& path)
    {
        if (const auto found = schema.find("const"); found != schema.end() && *found != value) {
            // Where an overlay's key takes one value only, that value is the narrower one.
            const bool narrows = elsewhere_ != nullptr && path != "version";
            refuse("bad-value", path, "must be " + shown(*found) + ", found " + shown(value),
                   narrows ? "an overlay may only narrow" : "");
        }
        const auto found = schema.find("enum");
        if (found == schema.end()) return;
        if (std::find(found->begin(), found->end(), value) != found->end()) return;
        std::vector<std::string_view> names;
        for (const Json& choice : *found) {
            if (choice.is_string()) names.push_back(choice.get_ref<const std::string&>());
        }
        std::string hint;
        if (value.is_string()) {
            const auto close = nearest(value.get_ref<const std::string&>(), names);
            if (!close.empty()) hint = "did you mean \"" + std::string(close) + "\"?";
        }
        refuse("bad-value", path, shown(value) + " is not one of: " + listed(names), hint);
    }

    void bounds(const Json& schema, const Json& value, const std::string& path)
    {
        const auto low = schema.find("minimum");
        const auto high = schema.find("maximum");
        if (low != schema.end() && value < *low) {
            refuse("out-of-range", path, shown(value) + " is too small, at least " + shown(*low));
        }
        if (high != schema.end() && value > *high) {
            refuse("out-of-range", path, shown(value) + " is too large, at most " + shown(*high));
        }
    }

    void length(const Json& schema, const Json& value, const std::string& path)
    {
        // In characters, as JSON Schema counts (draft-7 validation, section 6.3), not in bytes.
        const std::size_t count = characters(value.get_ref<const std::string&>());
        if (count == 0 && schema.value("minLength", std::size_t{0}) > 0) {
            refuse("empty-value", path, "must not be empty");
        } else if (count < schema.value("minLength", std::size_t{0})) {
            refuse("too-short", path,
                   "has " + std::to_string(count) + " characters, at least " +
                       shown(schema["minLength"]));
        } else if (count > schema.value("maxLength", SIZE_MAX)) {
            refuse("too-long", path,
                   "has " + std::to_string(count) + " characters, at most " +
                       shown(schema["maxLength"]));
        }
    }

    void items(const Json& schema, const Json& value, const std::string& path)
    {
        if (value.size() < schema.value("minItems", std::size_t{0})) {
            refuse("empty-value", path, "must not be empty");
        }
        if (value.size() > schema.value("maxItems", SIZE_MAX)) {
            refuse("too-many", path,
                   "has " + std::to_string(value.size()) + " items, at most " +
                       shown(schema["maxItems"]));
            return;  // one complaint instead of thousands
        }
        std::set<Json> seen;  // of the published schema: the lean one leaves this to code
        const auto each = schema.find("items");
        for (std::size_t i = 0; i < value.size(); ++i) {
            if (schema.value("uniqueItems", false) && !seen.insert(value[i]).second) {
                refuse("repeated", item_path(path, i), shown(value[i]) + " is listed twice");
            }
            if (each != schema.end()) explain(*each, value[i], item_path(path, i));
        }
    }

    void members(const Json& schema, const Json& value, const std::string& path)
    {
        // "Exactly one of" is how a choice between keys is written in our schemas.
        if (value.size() != 1 && schema.value("maxProperties", SIZE_MAX) == 1) {
            refuse("contradiction", path, "wants exactly one of: " + listed(known_keys(schema)));
            return;
        }
        if (value.size() > schema.value("maxProperties", SIZE_MAX)) {
            refuse("too-many", path,
                   "has " + std::to_string(value.size()) + " keys, at most " +
                       shown(schema["maxProperties"]));
            // Its keys are not looked at: there may be thousands.
            return;
        }
        if (const auto required = schema.find("required"); required != schema.end()) {
            for (const Json& key : *required) {
                const auto& name = key.get_ref<const std::string&>();
                if (value.contains(name)) continue;
                refuse("missing-key", member_path(path, name), "must be given and is not there");
            }
        }
        const auto properties = schema.find("properties");
        for (const auto& [name, member] : value.items()) {
            const std::string place = member_path(path, name);
            if (properties != schema.end() && properties->contains(name)) {
                explain(properties->at(name), member, place);
            } else {
                extra_member(schema, name, member, place);
            }
        }
    }

    void extra_member(const Json& schema, const std::string& name, const Json& member,
                      const std::string& place)
    {
        // Names first: a bad name explains more than what stands under it.
        if (const auto names = schema.find("propertyNames"); names != schema.end()) {
            const std::size_t before = document_.diagnostics.size();
            explain(*names, name, place);
            if (document_.diagnostics.size() != before) return;
        }
        const auto additional = schema.find("additionalProperties");
        // Draft-7: without the keyword everything is allowed.
        if (additional == schema.end()) return;
        if (additional->is_object()) return explain(*additional, member, place);
        if (*additional != false) return;
        unknown_key(schema, name, place);
    }

    // The names live in the schema's own JSON.
    static std::vector<std::string_view> known_keys(const Json& schema)
    {
        std::vector<std::string_view> names;
        const auto known = schema.find("properties");
        if (known == schema.end()) return names;
        for (auto it = known->begin(); it != known->end(); ++it) names.push_back(it.key());
        return names;
    }

    void unknown_key(const Json& schema, const std::string& name, const std::string& place)
    {
        // Known to the profile: the writer knew the key, and may not set it in an overlay.
        if (elsewhere_ != nullptr && node_at(*elsewhere_, place) != nullptr) {
            refuse("overlay-key", place, "an overlay may only narrow and cannot say this",
                   "set it in the profile itself");
            return;
        }
        const std::vector<std::string_view> names = known_keys(schema);
        // Within the table: a key of another one would only confuse.
        std::string_view close = nearest(name, names);
        for (const std::string_view known : names) {
            // "mem" is too short to be near "memory", and means nothing else.
            if (close.empty() && name.size() >= 3 && known.starts_with(name)) close = known;
        }
        refuse("unknown-key", place, "unknown key",
               close.empty() ? "known here: " + listed(names)
                             : "did you mean '" + std::string(close) + "'?");
    }

public:
    // The schema of the value at a key path (with or without indices); null when there is none.
    static const Json* node_at(const Json& schema, std::string_view path)
    {
        const Json* node = &schema;
        // Each step takes at least one character, so this ends for every path.
        while (!path.empty() && node != nullptr) node = step(*node, path);
        return node;
    }

    // Takes one step off the front of `path`.
    static const Json* step(const Json& node, std::string_view& path)
    {
        // The index itself does not matter: all items have one schema.
        if (path.front() == '[') {
            path.remove_prefix(std::min(path.size(), path.find(']') + 1));
            if (path.starts_with('.')) path.remove_prefix(1);
            const auto items = node.find("items");
            return items == node.end() ? nullptr : &*items;
        }
        // Paths without indices: "mount.source" is every mount's.
        const Json* from = &node;
        if (const auto items = node.find("items"); items != node.end()) from = &*items;
        const bool quoted = path.front() == '"';
        // member_path() puts names that are no bare keys into quotation marks.
        const std::size_t end = quoted ? path.find('"', 1) : path.find_first_of(".[");
        const std::string name(path.substr(quoted ? 1 : 0, quoted ? end - 1 : end));
        // A quote that is not closed gives npos: the rest is the name.
        path.remove_prefix(end == std::string_view::npos ? path.size() : end + (quoted ? 1 : 0));
        if (path.starts_with('.')) path.remove_prefix(1);
        const auto properties = from->find("properties");
        if (properties != from->end() && properties->contains(name)) return &properties->at(name);
        // A table with free names (labels, env): one schema for each of them.
        const auto additional = from->find("additionalProperties");
        return additional != from->end() && additional->is_object() ? &*additional : nullptr;
    }

private:
    Document& document_;
    const Json* elsewhere_;
};

// One path is the other, or lies inside it.
bool overlaps(std::string_view a, std::string_view b)
{
    const std::string_view shorter = a.size() < b.size() ? a : b;
    const std::string_view longer = a.size() < b.size() ? b : a;
    if (shorter.empty()) return true;
    return longer.starts_with(shorter) &&
           (longer.size() == shorter.size() || longer[shorter.size()] == '.' ||
            longer[shorter.size()] == '[');
}

// The lean schema decides, the explanation goes by the schema that was handed in.
void explain_failures(Document& document, const Json& schema, const Json* elsewhere,
                      const std::vector<SchemaFailure>& failures)
{
    Explainer(document, elsewhere).explain(schema, document.json, "");
    // Usually: the explainer found the same.
    if (!document.diagnostics.empty()) return;
    // A rule that nothing above has words for. valijson reports the parents of a failure as well.
    for (const SchemaFailure& failure : failures) {
        const bool parent = std::any_of(failures.begin(), failures.end(), [&](const auto& other) {
            // The deepest place says the most.
            return other.path.size() > failure.path.size() && overlaps(failure.path, other.path);
        });
        if (parent) continue;
        document.diagnostics.push_back(
            {"schema", failure.path, locate(document.where, failure.path), failure.text, {}});
    }
}

}  // namespace

void check_document(Document& document, std::string_view schema_name,
                    std::string_view accepted_elsewhere)
{
    const CompiledSchema* validator = lean_validator(schema_name);
    // Without a schema nothing is checked: names are the program's own.
    if (!document.parsed || validator == nullptr) return;
    const std::vector<SchemaFailure> failures = validator->validate(document.json);
    // The common case costs no explanation.
    if (failures.empty()) return;
    explain_failures(document, *lean_schema(schema_name), lean_schema(accepted_elsewhere),
                     failures);
}

std::string_view schema(std::string_view name)
{
    for (std::size_t i = 0; i < kEmbeddedSchemaCount; ++i) {
        if (kEmbeddedSchemas[i].name == name) return kEmbeddedSchemas[i].published;
    }
    return {};
}

std::vector<Diagnostic> check_schema(std::string_view schema_name, const Json& json)
{
    const CompiledSchema* validator = published_validator(schema_name);
    if (validator == nullptr) {
        return {
            {"schema", {}, {}, "there is no schema named '" + std::string(schema_name) + "'", {}}};
    }
    const std::vector<SchemaFailure> failures = validator->validate(json);
    if (failures.empty()) return {};
    Document document;
    document.parsed = true;
    document.json = json;
    explain_failures(document, *published_schema(schema_name), nullptr, failures);
    sort(document.diagnostics);
    return std::move(document.diagnostics);
}

// A step without a class of its own inherits that of the table around it.
ChangeClass change_class(std::string_view key)
{
    // The strictest is right for whatever the schema does not know.
    ChangeClass found = ChangeClass::replace;
    const Json* node = published_schema("profile");
    while (!key.empty() && node != nullptr) {
        node = Explainer::step(*node, key);
        if (node == nullptr) break;
        const auto value = node->find("x-change-class");
        if (value == node->end()) continue;
        found = from_name<ChangeClass>(value->get_ref<const std::string&>()).value_or(found);
    }
    return found;
}

}  // namespace sandbox::profile
