// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include "canon/json.hpp"
#include "plan/changes_json.hpp"
#include "plan/codec.hpp"
#include "profile/profile.hpp"

namespace sandbox::plan {

using canon::Json;

namespace {

// For people; no profile spells a value so.
constexpr std::string_view kAbsent = "(unset)";

bool is_leaf_list(const Json& value)
{
    if (!value.is_array()) return false;
    for (const Json& item : value) {
        if (item.is_structured()) return false;
    }
    return true;
}

std::string text_of(const Json& value)
{
    if (value.is_string()) return value.get<std::string>();
    if (value.is_null()) return std::string(kAbsent);
    // Every value of a sealed plan has a canonical form.
    return canon::serialize(value).value_or("?");
}

// A list of plain values is one leaf: argv reads better whole than word by word.
void flatten(const Json& value, const std::string& path, std::map<std::string, std::string>& out)
{
    if (value.is_object()) {
        for (const auto& [key, item] : value.items()) {
            flatten(item, path.empty() ? key : path + "." + key, out);
        }
        return;
    }
    if (value.is_array() && !is_leaf_list(value)) {
        for (std::size_t i = 0; i < value.size(); ++i) {
            flatten(value[i], path + "[" + std::to_string(i) + "]", out);
        }
        return;
    }
    out[path] = text_of(value);
}

std::string without_indices(std::string_view key)
{
    std::string out;
    bool inside = false;
    for (const char c : key) {
        if (c == '[') inside = true;
        if (!inside) out += c;
        if (c == ']') inside = false;
    }
    return out;
}

// What another host, policy or release changed while the profile stayed: another boundary is
// another sandbox, all else holds from the next start.
profile::ChangeClass derived_class(std::string_view key)
{
    return key.starts_with("plan.driver") || key.starts_with("plan.isolation_class")
               ? profile::ChangeClass::replace
               : profile::ChangeClass::next_start;
}

using Leaves = std::map<std::string, std::string>;

template <class Classify>
void compare(const Leaves& from, const Leaves& to, Classify classify, std::vector<Change>& out)
{
    Leaves all = from;
    all.insert(to.begin(), to.end());
    for (const auto& [key, unused] : all) {
        // One row for a key that only one of the two has, too: that a value came or went is a
        // change.
        const auto before = from.find(key);
        const auto after = to.find(key);
        const std::string old_text = before == from.end() ? std::string(kAbsent) : before->second;
        const std::string new_text = after == to.end() ? std::string(kAbsent) : after->second;
        if (old_text != new_text) out.push_back({key, old_text, new_text, classify(key)});
    }
}

}  // namespace

// The profile's keys first, with their own classes; then what follows from host, policy or release.
std::vector<Change> diff(const ExecutionPlan& from, const ExecutionPlan& to)
{
    std::vector<Change> changes;
    if (from == to) return changes;
    // Equal canonical bytes are the common case: no JSON is built.
    Leaves old_leaves;
    Leaves new_leaves;
    flatten(profile::to_json(from->request), "", old_leaves);
    flatten(profile::to_json(to->request), "", new_leaves);
    // Keyed without list indices: profile::change_class() knows "filesystem.mounts", not its third
    // item.
    compare(
        old_leaves, new_leaves,
        [](const std::string& key) { return profile::change_class(without_indices(key)); },
        changes);
    // Taken before the derived ones are added.
    const bool same_request = changes.empty();

    old_leaves.clear();
    new_leaves.clear();
    Json old_json = content_json(from.content());
    Json new_json = content_json(to.content());
    // Compared above, in the profile's own words.
    old_json.erase("request");
    new_json.erase("request");
    if (!same_request) {
        // These follow from the keys named above and would only repeat them.
        for (const char* key :
             {"process", "rootfs", "mounts", "masks", "network", "resources", "security", "microvm",
              "controls", "unenforced", "warnings", "facts"}) {
            old_json.erase(key);
            new_json.erase(key);
        }
    }
    flatten(old_json, "plan", old_leaves);
    flatten(new_json, "plan", new_leaves);
    compare(old_leaves, new_leaves, derived_class, changes);
    return changes;
}

canon::Json to_json(const std::vector<Change>& changes)
{
    canon::Json list = canon::Json::array();
    for (const Change& c : changes) {
        list.push_back({{"key", c.key},
                        {"from", c.from},
                        {"to", c.to},
                        {"class", std::string(profile::to_string(c.change_class))}});
    }
    return list;
}

}  // namespace sandbox::plan
