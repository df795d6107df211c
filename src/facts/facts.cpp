// SPDX-License-Identifier: Apache-2.0
#include "facts/facts.hpp"
#include "canon/json.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace sandbox::facts {

using canon::Json;

namespace {

constexpr std::array<std::string_view, 3> kStatuses{"ok", "gap", "note"};

std::optional<FactStatus> status_of(std::string_view text) noexcept
{
    const auto found = std::find(kStatuses.begin(), kStatuses.end(), text);
    if (found == kStatuses.end()) return std::nullopt;
    return static_cast<FactStatus>(found - kStatuses.begin());
}

// Names are printed and become keys of plans: nothing that needs escaping.
bool is_name(std::string_view text) noexcept
{
    constexpr std::size_t kMostName = 64;
    return !text.empty() && text.size() <= kMostName &&
           std::all_of(text.begin(), text.end(), [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_';
           });
}

Result<Fact> fact_from_json(const std::string& name, const Json& json)
{
    if (!json.is_object() || json.size() != 3) {
        return fail(Code::corrupt, name + ": status, value and evidence are wanted");
    }
    for (const char* key : {"status", "value", "evidence"}) {
        const auto found = json.find(key);
        if (found == json.end() || !found->is_string()) {
            return fail(Code::corrupt, name + "." + key + ": a string is wanted");
        }
    }
    const auto status = status_of(json["status"].get_ref<const std::string&>());
    if (!status) return fail(Code::corrupt, name + ".status: ok, gap or note is wanted");
    return Fact{*status, json["value"].get<std::string>(), json["evidence"].get<std::string>()};
}

}  // namespace

std::string_view to_string(FactStatus status) noexcept
{
    return kStatuses[static_cast<std::size_t>(status)];
}

const Fact* CapabilitySnapshot::find(std::string_view name) const
{
    const auto found = facts_.find(std::string(name));
    return found == facts_.end() ? nullptr : &found->second;
}

bool CapabilitySnapshot::ok(std::string_view name) const
{
    const Fact* fact = find(name);
    return fact != nullptr && fact->status == FactStatus::ok;
}

std::string_view CapabilitySnapshot::value(std::string_view name) const
{
    const Fact* fact = find(name);
    if (fact == nullptr || fact->status != FactStatus::ok) return {};
    return fact->value;
}

Json to_json(const CapabilitySnapshot& snapshot)
{
    Json facts = Json::object();
    for (const auto& [name, fact] : snapshot.facts()) {
        facts[name] = {
            {"status", to_string(fact.status)}, {"value", fact.value}, {"evidence", fact.evidence}};
    }
    return {{"version", kSnapshotVersion}, {"facts", std::move(facts)}};
}

Result<CapabilitySnapshot> snapshot_from_json(const Json& json)
{
    if (!json.is_object() || json.size() != 2 || !json.contains("version") ||
        !json.contains("facts")) {
        return fail(Code::corrupt, "a snapshot has the keys version and facts, no others");
    }
    if (!json["version"].is_number_integer() || json["version"] != kSnapshotVersion) {
        return fail(Code::corrupt, "this snapshot has version " + json["version"].dump() +
                                       ", wanted is " + std::to_string(kSnapshotVersion) +
                                       "; probe again with this release");
    }
    if (!json["facts"].is_object()) return fail(Code::corrupt, "facts: an object is wanted");
    std::map<std::string, Fact> facts;
    for (const auto& [name, item] : json["facts"].items()) {
        if (!is_name(name)) return fail(Code::corrupt, "facts: a name that no probe makes");
        facts.emplace(name, TRY(fact_from_json(name, item)));
    }
    return CapabilitySnapshot(std::move(facts));
}

}  // namespace sandbox::facts
