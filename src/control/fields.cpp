// SPDX-License-Identifier: Apache-2.0
#include "control/fields.hpp"

#include <limits>

#include "base/diagnostic.hpp"
#include "canon/json.hpp"

namespace sandbox::control {

Fields::Fields(const canon::Json& json, std::string what) : json_(json), what_(std::move(what))
{
    // Once, and then nothing is looked for in it.
    if (!json_.is_object()) refuse("wants an object");
}

void Fields::refuse(std::string message)
{
    // The first: the others often follow from it.
    if (!mistake_) mistake_ = std::move(message);
}

bool Fields::expect(bool right, const std::string& key, const char* wanted)
{
    // The key leads: a person looks for it in the request.
    if (!right) refuse(key + " wants " + wanted);
    return right;
}

const canon::Json* Fields::find(const std::string& key)
{
    asked_.insert(key);
    if (!json_.is_object()) return nullptr;
    const auto it = json_.find(key);
    // null and absent are the same: clients that write every member do not differ from those that
    // do not.
    return it == json_.end() || it->is_null() ? nullptr : &*it;
}

std::optional<std::string> Fields::text(const std::string& key)
{
    const canon::Json* value = find(key);
    // A wrong type is absent for the caller and remembered for finish().
    if (value == nullptr || !expect(value->is_string(), key, "a string")) return std::nullopt;
    return value->get<std::string>();
}

std::optional<bool> Fields::boolean(const std::string& key)
{
    const canon::Json* value = find(key);
    if (value == nullptr || !expect(value->is_boolean(), key, "true or false")) return std::nullopt;
    return value->get<bool>();
}

std::optional<std::int64_t> Fields::integer(const std::string& key, std::int64_t least,
                                            std::int64_t most)
{
    const canon::Json* value = find(key);
    if (value == nullptr || !expect(value->is_number_integer(), key, "a whole number")) {
        return std::nullopt;
    }
    // Beyond int64 only unsigned ones can be.
    const bool fits = !value->is_number_unsigned() ||
                      value->get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX);
    const std::int64_t number = fits ? value->get<std::int64_t>() : INT64_MAX;
    if (!fits || number < least || number > most) {
        refuse(key + " wants a number from " + std::to_string(least) + " to " +
               std::to_string(most));
        return std::nullopt;
    }
    return number;
}

std::optional<std::uint64_t> Fields::count(const std::string& key)
{
    // More than the 2^53 of I-JSON (RFC 7493): nanoseconds pass that after 104 days, and both ends
    // keep all 64 bits.
    const auto number = integer(key, 0, std::numeric_limits<std::int64_t>::max());
    return number ? std::optional(static_cast<std::uint64_t>(*number)) : std::nullopt;
}

std::optional<std::vector<std::string>> Fields::texts(const std::string& key)
{
    // One item of another type spoils the list.
    const canon::Json* value = array(key);
    if (value == nullptr) return std::nullopt;
    std::vector<std::string> list;
    for (const canon::Json& item : *value) {
        if (!expect(item.is_string(), key, "strings only")) return std::nullopt;
        list.push_back(item.get<std::string>());
    }
    return list;
}

std::optional<std::map<std::string, std::string>> Fields::table(const std::string& key)
{
    const canon::Json* value = object(key);
    if (value == nullptr) return std::nullopt;
    std::map<std::string, std::string> table;
    for (const auto& [name, member] : value->items()) {
        if (!expect(member.is_string(), key, "members that are strings")) return std::nullopt;
        table.emplace(name, member.get<std::string>());
    }
    return table;
}

const canon::Json* Fields::object(const std::string& key)
{
    const canon::Json* value = find(key);
    if (value == nullptr || !expect(value->is_object(), key, "an object")) return nullptr;
    return value;
}

const canon::Json* Fields::array(const std::string& key)
{
    const canon::Json* value = find(key);
    if (value == nullptr || !expect(value->is_array(), key, "a list")) return nullptr;
    return value;
}

Status Fields::finish()
{
    // Only if all that was asked for is right: one message, the first mistake.
    if (!mistake_ && strict_) {
        for (const auto& [key, value] : json_.items()) {
            if (!asked_.contains(key)) {
                refuse("nothing here is called '" + escaped(key) + "'");
                break;
            }
        }
    }
    if (mistake_) return fail(Code::invalid_argument, what_ + ": " + *mistake_);
    return {};
}

}  // namespace sandbox::control
