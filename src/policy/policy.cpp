// SPDX-License-Identifier: Apache-2.0
#include "policy/policy.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "canon/json.hpp"
#include "policy/pattern.hpp"
#include "profile/check.hpp"

namespace sandbox::policy {

using canon::Json;

namespace {

SourceLocation place_of(const LocatedBundle& bundle, std::string_view key)
{
    return profile::locate(bundle.where, key);
}

template <class T>
void lower(std::optional<T>& into, const std::optional<T>& other)
{
    // Nothing is no limit, so it never lowers one.
    if (other && (!into || *other < *into)) into = other;
}

void meet_into(Bundle& into, const Bundle& other)
{
    for (const SetKey& set : kSetKeys) {
        if (!(other.*set.member)) continue;
        // Both maxima and demands can only get tighter: a meet never permits more (law 3).
        into.*set.member = meet(set.kind, into.*set.member, other.*set.member);
    }
    lower(into.max.memory, other.max.memory);
    lower(into.max.cpus, other.max.cpus);
    lower(into.max.pids, other.max.pids);
    lower(into.max.ttl, other.max.ttl);
    lower(into.max.sandboxes, other.max.sandboxes);
    into.require.read_only_rootfs |= other.require.read_only_rootfs;
    into.require.cgroup_v2 |= other.require.cgroup_v2;
    into.require.pinned_digests |= other.require.pinned_digests;
    // The one scalar where more is stricter.
    const auto& kept = other.require.log_retention;
    if (kept && (!into.require.log_retention || *kept > *into.require.log_retention)) {
        into.require.log_retention = kept;
    }
}

// A maximum or a demand as text; empty where the bundle is silent.
std::string scalar_text(const Bundle& bundle, std::string_view key)
{
    const auto number = [](const std::optional<std::uint32_t>& value) {
        return value ? std::to_string(*value) : std::string();
    };
    // A demand that is not made is silence.
    const auto yes = [](bool value) { return std::string(value ? "true" : ""); };
    const Maxima& max = bundle.max;
    const Demands& require = bundle.require;
    if (key == "max.memory") return max.memory ? format(*max.memory) : "";
    if (key == "max.cpus") return max.cpus ? format(*max.cpus) : "";
    if (key == "max.pids") return number(max.pids);
    if (key == "max.ttl") return max.ttl ? format_duration(*max.ttl) : "";
    if (key == "max.sandboxes") return number(max.sandboxes);
    if (key == "require.log_retention") {
        return require.log_retention ? format_duration(*require.log_retention) : "";
    }
    if (key == "require.read_only_rootfs") return yes(require.read_only_rootfs);
    // Empty for a set's key: the caller asks decisions then.
    if (key == "require.cgroup_v2") return yes(require.cgroup_v2);
    if (key == "require.pinned_digests") return yes(require.pinned_digests);
    return {};
}

constexpr std::string_view kScalarKeys[] = {"max.cpus",
                                            "max.memory",
                                            "max.pids",
                                            "max.sandboxes",
                                            "max.ttl",
                                            "require.cgroup_v2",
                                            "require.log_retention",
                                            "require.pinned_digests",
                                            "require.read_only_rootfs"};

std::string joined(const std::set<std::string>& set)
{
    std::string text;
    for (const std::string& item : set) text += (text.empty() ? "" : ", ") + item;
    // An empty set permits nothing, and says so.
    return text.empty() ? "nothing" : text;
}

std::vector<Decision> decide(const Bundle& meet, const std::vector<LocatedBundle>& bundles)
{
    std::vector<Decision> decisions;
    for (const SetKey& set : kSetKeys) {
        if (!(meet.*set.member)) continue;
        Decision decision{std::string(set.key), joined(*(meet.*set.member)), {}};
        for (const LocatedBundle& bundle : bundles) {
            if (bundle.bundle.*set.member) decision.by.push_back(place_of(bundle, set.key));
        }
        decisions.push_back(std::move(decision));
    }
    for (const std::string_view key : kScalarKeys) {
        std::string value = scalar_text(meet, key);
        if (value.empty()) continue;
        Decision decision{std::string(key), std::move(value), {}};
        for (const LocatedBundle& bundle : bundles) {
            if (!scalar_text(bundle.bundle, key).empty()) {
                decision.by.push_back(place_of(bundle, key));
            }
        }
        decisions.push_back(std::move(decision));
    }
    for (Decision& decision : decisions) {
        // A bundle that was given twice counts once.
        std::sort(decision.by.begin(), decision.by.end());
        decision.by.erase(std::unique(decision.by.begin(), decision.by.end()), decision.by.end());
    }
    std::sort(decisions.begin(), decisions.end(),
              [](const Decision& a, const Decision& b) { return a.key < b.key; });
    return decisions;
}

// Every value is a string, an integer or a boolean; null where all bundles are silent.
Json limits_json(const Bundle& bundle)
{
    // Null and "nothing permitted" ([]) are different policies and must digest differently.
    Json json = Json::object();
    for (const SetKey& set : kSetKeys) {
        const PermittedSet& value = bundle.*set.member;
        json[std::string(set.key)] = value ? Json(*value) : Json(nullptr);
    }
    const auto number = [](const auto& value) {
        // Bytes and thousandths of a CPU, as counts: text would depend on how it was written.
        return value ? Json(value->count) : Json(nullptr);
    };
    const auto plain = [](const auto& value) { return value ? Json(*value) : Json(nullptr); };
    const auto millis = [](const auto& value) {
        return value ? Json(value->count()) : Json(nullptr);
    };
    json["max"] = {{"memory", number(bundle.max.memory)},
                   {"cpus", number(bundle.max.cpus)},
                   {"pids", plain(bundle.max.pids)},
                   {"ttl", millis(bundle.max.ttl)},
                   {"sandboxes", plain(bundle.max.sandboxes)}};
    json["require"] = {{"read_only_rootfs", bundle.require.read_only_rootfs},
                       {"log_retention", millis(bundle.require.log_retention)},
                       {"cgroup_v2", bundle.require.cgroup_v2},
                       {"pinned_digests", bundle.require.pinned_digests}};
    return json;
}

Json place_json(const SourceLocation& place)
{
    return {{"file", place.file}, {"line", place.line}, {"column", place.column}};
}

std::string show(const SourceLocation& place)
{
    return escaped(place.file) + ":" + std::to_string(place.line);
}

const SetKey* find_set(std::string_view key)
{
    for (const SetKey& set : kSetKeys) {
        if (set.key == key) return &set;
    }
    return nullptr;
}

// A path with ".." in it would pass as below a prefix that it leaves.
bool is_usable(const SetKey& set, std::string_view value)
{
    // Profiles are checked already; this is for every other caller.
    return set.kind != Kind::path || !profile::flaw_in_path(value);
}

// Of a maximum or a demand one bundle decides and the others would have allowed more; of a set
// each takes its part away.
std::string render_places(const EffectivePolicy& policy, const Decision& decision)
{
    std::string text;
    std::string others;
    const bool is_set = find_set(decision.key) != nullptr;
    const SourceLocation decider = policy.source_of(decision.key);
    for (const SourceLocation& place : decision.by) {
        if (is_set || place == decider) {
            text += (text.empty() ? "" : ", ") + show(place);
        } else {
            others += (others.empty() ? "" : ", ") + show(place);
        }
    }
    return others.empty() ? text : text + " (also " + others + ")";
}

}  // namespace

EffectivePolicy EffectivePolicy::meet(std::vector<LocatedBundle> bundles,
                                      std::vector<BrokenBundle> broken)
{
    EffectivePolicy policy;
    // Sorted by place, so that the result does not depend on the order of a directory.
    std::sort(bundles.begin(), bundles.end(), [](const LocatedBundle& a, const LocatedBundle& b) {
        return std::pair(place_of(a, ""), a.bundle.name) <
               std::pair(place_of(b, ""), b.bundle.name);
    });
    std::sort(broken.begin(), broken.end(), [](const BrokenBundle& a, const BrokenBundle& b) {
        return std::tie(a.file, a.why) < std::tie(b.file, b.why);
    });
    for (const LocatedBundle& bundle : bundles) meet_into(policy.meet_, bundle.bundle);
    // Of the meet that is done: a decision names its value.
    policy.decisions_ = decide(policy.meet_, bundles);
    policy.bundles_ = std::move(bundles);
    policy.broken_ = std::move(broken);
    Json meaning = limits_json(policy.meet_);
    // A policy that denies everything is another policy; which file is broken is not its meaning.
    meaning["broken"] = !policy.broken_.empty();
    // Only integers and UTF-8 that came through TOML: serialize cannot fail.
    policy.digest_ = canon::digest(canon::serialize(meaning).value_or(""));
    return policy;
}

bool EffectivePolicy::permits(std::string_view key, std::string_view value) const
{
    const SetKey* set = find_set(key);
    // Fails closed on each doubt.
    if (set == nullptr || !broken_.empty() || !is_usable(*set, value)) return false;
    return policy::permits(set->kind, meet_.*set->member, value);
}

SourceLocation EffectivePolicy::refuser(std::string_view key, std::string_view value) const
{
    // All bundles deny then; the first broken one is what to mend.
    if (!broken_.empty()) return {broken_.front().file, 0, 0};
    const SetKey* set = find_set(key);
    if (set == nullptr) return {};
    for (const LocatedBundle& bundle : bundles_) {
        const PermittedSet& permitted = bundle.bundle.*set->member;
        const bool fine = is_usable(*set, value) && policy::permits(set->kind, permitted, value);
        if (permitted && !fine) return place_of(bundle, key);
    }
    return {};
}

SourceLocation EffectivePolicy::source_of(std::string_view key) const
{
    const std::string effective = scalar_text(meet_, key);
    for (const LocatedBundle& bundle : bundles_) {
        if (!effective.empty() && scalar_text(bundle.bundle, key) == effective) {
            // The first with that very value: a bundle that allows more has decided nothing.
            return place_of(bundle, key);
        }
    }
    for (const Decision& decision : decisions_) {
        if (decision.key == key && !decision.by.empty()) return decision.by.front();
    }
    return {};
}

// For `policy explain -o json` and the API; places are files of this host.
Json to_json(const EffectivePolicy& policy)
{
    Json decisions = Json::array();
    for (const Decision& decision : policy.decisions()) {
        Json by = Json::array();
        for (const SourceLocation& place : decision.by) by.push_back(place_json(place));
        decisions.push_back(
            {{"key", decision.key}, {"value", decision.value}, {"by", std::move(by)}});
    }
    Json bundles = Json::array();
    for (const LocatedBundle& bundle : policy.bundles()) {
        bundles.push_back({{"name", bundle.bundle.name},
                           {"file", place_of(bundle, "").file},
                           {"valid_until", bundle.bundle.valid_until}});
    }
    Json broken = Json::array();
    for (const BrokenBundle& bundle : policy.broken()) {
        broken.push_back({{"file", bundle.file}, {"why", bundle.why}});
    }
    return {{"digest", policy.digest()},
            {"bundles", std::move(bundles)},
            {"broken", std::move(broken)},
            {"limits", limits_json(policy.limits())},
            {"decisions", std::move(decisions)}};
}

std::string render_explain(const EffectivePolicy& policy)
{
    std::string text = "policy " + policy.digest() + "\n";
    for (const BrokenBundle& bundle : policy.broken()) {
        text += "BROKEN " + escaped(bundle.file) + ": " + escaped(bundle.why) + "\n";
    }
    if (!policy.broken().empty()) {
        text += "Every launch is denied until each bundle can be used.\n";
    }
    for (const LocatedBundle& bundle : policy.bundles()) {
        text += "bundle " + escaped(bundle.bundle.name) + " (" + escaped(place_of(bundle, "").file);
        if (!bundle.bundle.valid_until.empty())
            text += ", valid until " + bundle.bundle.valid_until;
        text += ")\n";
    }
    if (policy.decisions().empty() && !policy.broken().empty()) return text;
    if (policy.decisions().empty()) {
        return text + "No bundle limits anything: whatever a profile may say is permitted.\n";
    }
    std::size_t key_width = 0;
    std::size_t value_width = 0;
    // Of a value: longer lists keep their line, and their places follow unaligned.
    constexpr std::size_t kWidest = 40;
    for (const Decision& decision : policy.decisions()) {
        key_width = std::max(key_width, decision.key.size());
        // Of escaped texts: what is seen must line up.
        value_width = std::max(value_width, std::min(kWidest, escaped(decision.value).size()));
    }
    text += "\n";
    for (const Decision& decision : policy.decisions()) {
        std::string line = decision.key + std::string(key_width + 2 - decision.key.size(), ' ');
        const std::string value = escaped(decision.value);
        line += value + std::string(value_width - std::min(value.size(), value_width) + 2, ' ');
        text += line + render_places(policy, decision) + "\n";
    }
    return text + "\nWhat is not listed is permitted.\n";
}

}  // namespace sandbox::policy
