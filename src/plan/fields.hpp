// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "canon/json.hpp"

// Strict reading of JSON objects whose keys are all known and all present.
namespace sandbox::plan {

// The first thing wrong in a document; later ones are not kept, because they often follow from it.
// Its Error is corrupt: only files of our own are read this way.
class Failure {
public:
    void set(const std::string& where, const std::string& what);
    [[nodiscard]] Status status() const;
    bool any() const noexcept { return error_.has_value(); }

private:
    std::optional<Error> error_;
};

// One object. A getter of a missing or wrong value records the failure and returns an empty value,
// so that a reader is a straight list; nothing may act on the values before Failure::status() is
// looked at. `close` refuses keys nobody asked for: call it last. Requires: the Json and the
// Failure outlive this.
class Fields {
public:
    Fields(const canon::Json& json, std::string where, Failure& failure);

    // The key must be present and of that type; a string may be empty, a list or an object, too.
    std::string text(const char* key);
    bool flag(const char* key);
    // Whole, not negative, and at most what `Unsigned` holds.
    template <class Unsigned>
    Unsigned number(const char* key)
    {
        return static_cast<Unsigned>(
            unsigned_of(key, take(key), std::numeric_limits<Unsigned>::max()));
    }
    // The key must be present; null is nothing.
    template <class Unsigned>
    std::optional<Unsigned> maybe_number(const char* key)
    {
        const canon::Json& value = take(key);
        if (value.is_null()) return std::nullopt;
        return static_cast<Unsigned>(unsigned_of(key, value, std::numeric_limits<Unsigned>::max()));
    }
    std::vector<std::string> texts(const char* key);
    std::map<std::string, std::string> text_map(const char* key);
    std::map<std::string, std::uint64_t> number_map(const char* key);
    // Readers of inner objects, with the path for errors; each is to be closed by itself.
    Fields object(const char* key);
    std::vector<Fields> objects(const char* key);
    std::map<std::string, Fields> object_map(const char* key);
    // Counts as asked for; null when it is missing.
    const canon::Json& raw(const char* key) { return take(key); }

    // One of `names`, as its position; 0 and a failure for any other.
    template <class Enum, class Names>
    Enum choice(const char* key, const Names& names)
    {
        const std::string value = text(key);
        for (std::size_t i = 0; i < names.size(); ++i) {
            if (names[i] == value) return static_cast<Enum>(i);
        }
        refuse(key, "the unknown word '" + value + "'");
        return Enum{};
    }

    // Records a failure of a value that has the right type and a wrong meaning.
    void refuse(const char* key, const std::string& what);
    void close();

private:
    // Marks the key as known.
    const canon::Json& take(const char* key);
    std::uint64_t unsigned_of(const char* key, const canon::Json& value, std::uint64_t most);
    std::string path(std::string_view key) const;

    const canon::Json* json_;
    std::string where_;
    Failure* failure_;
    std::set<std::string, std::less<>> seen_;
};

}  // namespace sandbox::plan
