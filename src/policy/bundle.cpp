// SPDX-License-Identifier: Apache-2.0
#include "base/diagnostic.hpp"
#include "policy/pattern.hpp"
#include "policy/policy.hpp"
#include "profile/check.hpp"
#include "profile/host.hpp"
#include "profile/normal.hpp"
#include "profile/reader.hpp"

namespace sandbox::policy {

using profile::Flaw;
// The words of a bundle, in the profile's vocabulary: both share reader and schema.
using profile::Reader;

namespace {

std::optional<Flaw> read_host(std::string& text)
{
    // As a pattern it would be "everything", which a bundle says by silence; a list with it in
    // would hide that.
    if (text == "*") {
        return Flaw{"bad-host", "\"*\" is not a host",
                    "leave egress_hosts out to permit every host"};
    }
    auto host = profile::canonical_host(text);
    if (!host) return Flaw{"bad-host", host.error().message(), {}};
    // In place: the set then holds one spelling per host, so that a comparison of bytes is exact.
    text = *std::move(host);
    return std::nullopt;
}

std::optional<Flaw> read_user(const std::string& text)
{
    if (text == "*") return std::nullopt;
    // A prefix of one number is a pattern; the number itself has to be numeric, because a name's id
    // is the image's to choose.
    std::string_view id = text;
    if (id.ends_with(":*")) {
        id.remove_suffix(2);
    } else if (id.find(':') == std::string_view::npos) {
        id = {};
    }
    if (!id.empty() && profile::parse_user(id)) return std::nullopt;
    return Flaw{"bad-user", "\"" + escaped(text) + "\" is not a numeric user",
                "\"1000:1000\", \"1000:*\" or \"*\""};
}

std::optional<Flaw> normalise(std::string_view key, std::string& text)
{
    if (key == "egress_hosts") return read_host(text);
    if (key == "mount_sources") return profile::flaw_in_path(text);
    if (key == "capabilities") return profile::flaw_in_capability(text);
    if (key == "users") return read_user(text);
    return std::nullopt;  // the schema lists the words
}

PermittedSet read_set(Reader& root, std::string_view key)
{
    if (!root.has(key)) return std::nullopt;
    std::set<std::string> set;
    std::vector<std::string> items = root.texts(key);
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (auto flaw = normalise(key, items[i])) {
            // Told at the item and not at the list; all of them are told.
            root.refuse_at(flaw->code, profile::item_path(root.path(key), i), flaw->message,
                           flaw->hint);
        } else if (!set.insert(items[i]).second) {
            root.refuse_at("repeated", profile::item_path(root.path(key), i),
                           "\"" + escaped(items[i]) + "\" is listed twice");
        }
    }
    return set;
}

Bundle read(profile::Document& document)
{
    Reader root(document);
    Bundle bundle;
    bundle.name = root.text("name").value_or("");
    if (const auto flaw = profile::flaw_in_label(bundle.name)) {
        // Also when the name is missing: "" is no label.
        root.refuse(flaw->code, "name", flaw->message, flaw->hint);
    }
    bundle.valid_until = root.text("valid_until").value_or("");
    // A date that does not exist would never be past, and `doctor` could not warn.
    if (!bundle.valid_until.empty() && !is_rfc3339(bundle.valid_until)) {
        root.refuse("bad-date", "valid_until",
                    "\"" + escaped(bundle.valid_until) + "\" is no date of RFC 3339",
                    "\"2027-01-31\" or \"2027-01-31T12:00:00Z\"");
    }
    // has() tells absent from empty: nothing permits all, an empty list none.
    for (const SetKey& set : kSetKeys) bundle.*set.member = read_set(root, set.key);
    Reader max = root.table("max");
    bundle.max.memory = max.size("memory");
    bundle.max.cpus = max.cpus("cpus");
    bundle.max.pids = max.small("pids");
    bundle.max.ttl = max.duration("ttl");
    bundle.max.sandboxes = max.small("sandboxes");
    Reader require = root.table("require");
    bundle.require.read_only_rootfs = require.flag("read_only_rootfs").value_or(false);
    bundle.require.log_retention = require.duration("log_retention");
    bundle.require.cgroup_v2 = require.flag("cgroup_v2").value_or(false);
    bundle.require.pinned_digests = require.flag("pinned_digests").value_or(false);
    return bundle;
}

}  // namespace

ParsedBundle parse_bundle(std::string_view toml, std::string_view file)
{
    ParsedBundle result;
    profile::Document document = profile::read_toml(toml, file);
    if (document.parsed) {
        profile::check_document(document, "bundle");
        Bundle bundle = read(document);
        // Also an unknown key makes the bundle unusable: it might be a limit that is misspelt.
        if (document.diagnostics.empty()) {
            result.bundle = LocatedBundle{std::move(bundle), std::move(document.where)};
        }
    }
    result.diagnostics = std::move(document.diagnostics);
    sort(result.diagnostics);
    return result;
}

}  // namespace sandbox::policy
