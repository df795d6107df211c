// SPDX-License-Identifier: Apache-2.0
#include "plan/fields.hpp"

#include "base/diagnostic.hpp"
#include "canon/json.hpp"

namespace sandbox::plan {

using canon::Json;

void Failure::set(const std::string& where, const std::string& what)
{
    // First one only: the rest often follow from it.
    // From a file that anybody may have written: it may hold terminal escapes.
    if (!error_) error_ = Error(Code::corrupt, escaped(where + ": " + what));
}

Status Failure::status() const
{
    if (error_) return fail(*error_);
    return {};
}

Fields::Fields(const Json& json, std::string where, Failure& failure)
    : json_(&json), where_(std::move(where)), failure_(&failure)
{
    if (!json.is_object()) failure.set(where_, "an object is wanted");
}

std::string Fields::path(std::string_view key) const
{
    if (where_.empty()) return std::string(key);
    return where_ + "." + std::string(key);
}

void Fields::refuse(const char* key, const std::string& what) { failure_->set(path(key), what); }

const Json& Fields::take(const char* key)
{
    // Shared by all and never written to: a getter answers with a reference.
    static const Json kNothing;
    // Also when it is missing, or close() would say something about it, too.
    seen_.insert(key);
    if (!json_->is_object()) return kNothing;
    const auto found = json_->find(key);
    if (found == json_->end()) {
        refuse(key, "missing");
        return kNothing;
    }
    return *found;
}

std::string Fields::text(const char* key)
{
    const Json& value = take(key);
    if (value.is_string()) return value.get<std::string>();
    refuse(key, "a string is wanted");
    return {};
}

bool Fields::flag(const char* key)
{
    const Json& value = take(key);
    if (value.is_boolean()) return value.get<bool>();
    refuse(key, "true or false is wanted");
    return false;
}

std::uint64_t Fields::unsigned_of(const char* key, const Json& value, std::uint64_t most)
{
    // A value built in memory may be a signed integer that is not negative.
    // nlohmann keeps the sign in the type; a parsed number that is not negative is unsigned.
    if (value.is_number_integer() &&
        (value.is_number_unsigned() || value.get<std::int64_t>() >= 0)) {
        const auto number = value.get<std::uint64_t>();
        // Also more than `Unsigned` can hold: the cast in the header cannot lose anything.
        if (number <= most) return number;
        refuse(key, "at most " + std::to_string(most) + " is wanted");
        return 0;
    }
    refuse(key, "a whole number is wanted");
    return 0;
}

std::vector<std::string> Fields::texts(const char* key)
{
    std::vector<std::string> out;
    const Json& value = take(key);
    // A scalar is iterated as itself: the first round below ends it; null has no items.
    if (!value.is_array()) refuse(key, "a list is wanted");
    for (const Json& item : value) {
        if (!item.is_string()) {
            refuse(key, "a list of strings is wanted");
            break;
        }
        out.push_back(item.get<std::string>());
    }
    return out;
}

std::map<std::string, std::string> Fields::text_map(const char* key)
{
    std::map<std::string, std::string> out;
    const Json& value = take(key);
    if (!value.is_object()) {
        refuse(key, "an object is wanted");
        return out;
    }
    for (const auto& [name, item] : value.items()) {
        if (!item.is_string()) {
            refuse(key, "strings are wanted");
            break;
        }
        out.emplace(name, item.get<std::string>());
    }
    return out;
}

std::map<std::string, std::uint64_t> Fields::number_map(const char* key)
{
    std::map<std::string, std::uint64_t> out;
    const Json& value = take(key);
    if (!value.is_object()) {
        refuse(key, "an object is wanted");
        return out;
    }
    for (const auto& [name, item] : value.items()) {
        out.emplace(name, unsigned_of(key, item, std::numeric_limits<std::uint64_t>::max()));
    }
    return out;
}

// take() may give null: the new Fields then says "an object is wanted", once, with the full path.
Fields Fields::object(const char* key) { return Fields(take(key), path(key), *failure_); }

std::vector<Fields> Fields::objects(const char* key)
{
    std::vector<Fields> out;
    const Json& value = take(key);
    if (!value.is_array()) {
        refuse(key, "a list is wanted");
        return out;
    }
    for (const Json& item : value) {
        out.emplace_back(item, path(key) + "[" + std::to_string(out.size()) + "]", *failure_);
    }
    return out;
}

std::map<std::string, Fields> Fields::object_map(const char* key)
{
    std::map<std::string, Fields> out;
    const Json& value = take(key);
    if (!value.is_object()) {
        refuse(key, "an object is wanted");
        return out;
    }
    for (const auto& [name, item] : value.items()) {
        out.emplace(name, Fields(item, path(key) + "." + name, *failure_));
    }
    return out;
}

void Fields::close()
{
    // Already refused in the constructor.
    if (!json_->is_object()) return;
    for (const auto& [name, item] : json_->items()) {
        if (!seen_.contains(name)) failure_->set(path(name), "an unknown key");
    }
}

}  // namespace sandbox::plan
