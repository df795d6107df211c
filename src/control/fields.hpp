// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "canon/canon.hpp"

namespace sandbox::control {

// Reads the members of one JSON object that came over a socket. Every member must be asked for:
// finish() refuses those nobody knows, so that an option is never silently ignored. The first
// mistake is kept and reported by finish(); until then absent and wrong members read as nothing.
// Pure.
class Fields {
public:
    // `what` names the object in messages. The value must outlive this.
    Fields(const canon::Json& json, std::string what);

    const canon::Json* find(const std::string& key);  // null counts as absent
    std::optional<std::string> text(const std::string& key);
    std::optional<bool> boolean(const std::string& key);
    std::optional<std::int64_t> integer(const std::string& key, std::int64_t least,
                                        std::int64_t most);
    std::optional<std::uint64_t> count(const std::string& key);
    std::optional<std::vector<std::string>> texts(const std::string& key);
    std::optional<std::map<std::string, std::string>> table(const std::string& key);
    const canon::Json* object(const std::string& key);
    const canon::Json* array(const std::string& key);

    // For members that only newer peers send and that change nothing.
    void ignore_the_rest() noexcept { strict_ = false; }
    void refuse(std::string message);
    [[nodiscard]] Status finish();

private:
    bool expect(bool right, const std::string& key, const char* wanted);

    const canon::Json& json_;
    std::string what_;
    std::set<std::string> asked_;
    std::optional<std::string> mistake_;
    bool strict_ = true;
};

}  // namespace sandbox::control
