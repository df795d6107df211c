// SPDX-License-Identifier: Apache-2.0
#include "profile/profile.hpp"

#include <algorithm>

#include "base/diagnostic.hpp"
#include "profile/check.hpp"
#include "profile/host.hpp"
#include "profile/normal.hpp"
#include "profile/reader.hpp"

namespace sandbox::profile {

namespace {

// By key: std::map sorts, and the digest of a profile does not depend on the order in a file.
std::map<std::string, std::string> read_texts(const Reader& table)
{
    std::map<std::string, std::string> values;
    for (const std::string& name : table.keys()) {
        if (auto value = table.text(name)) values.emplace(name, *std::move(value));
    }
    return values;
}

std::optional<User> read_user(Reader& table)
{
    const auto written = table.text("user");
    // "" has its complaint from the schema.
    if (!written || written->empty()) return std::nullopt;
    const auto user = parse_user(*written);
    if (user) return user;
    // The two mistakes that people make: a name, and a number that is too large.
    const bool numeric = written->find_first_not_of("0123456789:") == std::string::npos;
    table.refuse("bad-user", "user", "\"" + escaped(*written) + "\" is not a numeric user",
                 numeric ? "\"UID:GID\", each up to 4294967294, without leading zeros"
                         : "names differ from host to host: write numbers, such as \"1000:1000\"");
    return std::nullopt;
}

Process read_process(Reader table)
{
    Process process;
    // Defaults stand here and in types.hpp; the schema only describes them.
    process.argv = table.texts("argv");
    process.idle = table.flag("idle").value_or(false);
    process.env = read_texts(table.table("env"));
    process.cwd = GuestPath(table.text("cwd").value_or("/"));
    process.user = read_user(table).value_or(User{});
    // 0022: what login shells use.
    process.umask = table.mode("umask", 0777).value_or(0022);
    process.terminal = table.flag("terminal").value_or(false);
    process.timeout = table.duration("timeout");
    const Reader limits = table.table("rlimits");
    for (const std::string& name : limits.keys()) {
        if (const auto value = limits.integer(name)) process.rlimits.emplace(name, *value);
    }
    return process;
}

Rootfs read_rootfs(Reader table)
{
    Rootfs rootfs;
    if (const auto source = table.text("source"); source && !source->empty()) {
        if (auto parsed = parse_rootfs(*source)) {
            rootfs = *std::move(parsed);
        } else {
            // The usual slip: a path without its kind.
            table.refuse("bad-value", "source", "\"" + escaped(*source) + "\" is no root",
                         source->starts_with('/')
                             ? "write \"dir:" + *source + "\""
                             : "\"host\", \"dir:/path\" or \"image:reference\"");
        }
    }
    // The default grants less.
    rootfs.read_only = table.flag("read_only").value_or(true);
    return rootfs;
}

Mount read_mount(Reader table)
{
    Mount mount;
    mount.type = table.choice<MountType>("type").value_or(MountType::bind);
    mount.source = table.text("source").value_or("");
    mount.target = GuestPath(table.text("target").value_or(""));
    // A tmpfs that cannot be written is of no use; what comes from the host is read-only unless
    // said.
    mount.read_only = table.flag("read_only").value_or(mount.type != MountType::tmpfs);
    mount.size = table.size("size");
    mount.mode = table.mode("mode", 01777);
    return mount;
}

// Where each rule was written goes under the index it has in the typed list, so that denials of the
// resolver point at the line.
class RuleList {
public:
    RuleList(Network& network, Document& document) : network_(network), document_(document) {}

    void add(NetworkRule rule, const std::string& written_at)
    {
        const std::string key = item_path("network.rule", network_.rules.size());
        places_[key] = locate(document_.where, written_at);
        network_.rules.push_back(std::move(rule));
    }

    // Allow and deny lists shift the [[network.rule]] tables: their places are set anew.
    // Once, when all are in: add() still looks up places of the document.
    void finish()
    {
        std::erase_if(document_.where,
                      [](const auto& item) { return item.first.starts_with("network.rule["); });
        document_.where.insert(places_.begin(), places_.end());
    }

private:
    Network& network_;
    Document& document_;
    Locations places_;
};

void read_short_rules(Reader& table, const char* key, RuleAction action, RuleList& rules)
{
    const std::vector<std::string> list = table.texts(key);
    for (std::size_t i = 0; i < list.size(); ++i) {
        const std::string place = item_path(table.path(key), i);
        if (list[i].empty()) continue;  // the schema's complaint
        const auto destination = parse_destination(list[i]);
        if (!destination) {
            table.refuse_at("bad-host", place, destination.error().message());
            continue;
        }
        rules.add({action, destination->host, destination->port, Protocol::tcp, {}}, place);
        // A host that is denied is not reached by another protocol either.
        if (action == RuleAction::allow) continue;
        rules.add({action, destination->host, destination->port, Protocol::udp, {}}, place);
    }
}

void read_long_rule(Reader table, RuleList& rules)
{
    NetworkRule rule;
    // Deny by default where the word was not understood: the profile is refused anyway.
    rule.action = table.choice<RuleAction>("action").value_or(RuleAction::deny);
    rule.protocol = table.choice<Protocol>("protocol").value_or(Protocol::tcp);
    rule.reason = table.text("reason").value_or("");
    // A larger number has its complaint from the schema.
    if (const auto port = table.small("port"); port && *port <= 65535) {
        rule.port = static_cast<std::uint16_t>(*port);
    }
    const auto written = table.text("host");
    // "" and "no host" have theirs, too.
    if (!written || written->empty()) return;
    auto host = canonical_host(*written);
    if (!host) return table.refuse("bad-host", "host", host.error().message());
    rule.host = *std::move(host);
    rules.add(std::move(rule), table.path("host"));
}

Network read_network(Reader table, Document& document)
{
    Network network;
    network.mode = table.choice<NetworkMode>("mode").value_or(NetworkMode::none);
    // The order means nothing (deny wins); one order only keeps equal profiles equal.
    RuleList rules(network, document);
    read_short_rules(table, "allow", RuleAction::allow, rules);
    read_short_rules(table, "deny", RuleAction::deny, rules);
    for (const Reader& rule : table.tables("rule")) read_long_rule(rule, rules);
    rules.finish();
    for (Reader& item : table.tables("publish")) {
        const auto written = item.text("host");
        const auto guest = item.small("guest");
        // The schema's complaint again; nothing half-read goes on.
        if (!written || written->empty() || !guest || *guest > 65535) continue;
        if (auto host = parse_host_port(*written)) {
            network.publish.push_back(
                {std::move(host->address), host->port, static_cast<std::uint16_t>(*guest)});
        } else {
            item.refuse("bad-host", "host", "\"" + escaped(*written) + "\" is no address and port",
                        "such as \"127.0.0.1:8080\" or \"[::1]:8080\"");
        }
    }
    return network;
}

Resources read_resources(Reader table)
{
    Resources resources;
    resources.memory = table.size("memory");
    resources.swap = table.size("swap");
    resources.cpus = table.cpus("cpus");
    resources.cpu_weight = table.small("cpu_weight");
    resources.io_weight = table.small("io_weight");
    resources.pids = table.small("pids").value_or(resources.pids);
    resources.disk = table.size("disk");
    if (const auto written = table.text("cpuset"); written && !written->empty()) {
        // Canonical at once: two spellings of one set are one profile.
        resources.cpuset = canonical_cpuset(*written);
        if (!resources.cpuset) {
            table.refuse("bad-cpuset", "cpuset", "\"" + escaped(*written) + "\" is no list of CPUs",
                         "numbers up to 8191 and ranges, such as \"0-1,4\"");
        }
    }
    return resources;
}

Security read_security(Reader table)
{
    Security security;
    security.seccomp = table.choice<SeccompProfile>("seccomp").value_or(SeccompProfile::standard);
    const std::vector<std::string> written = table.texts("capabilities");
    for (std::size_t i = 0; i < written.size(); ++i) {
        if (auto flaw = flaw_in_capability(written[i])) {
            table.refuse_at(flaw->code, item_path(table.path("capabilities"), i), flaw->message,
                            flaw->hint);
        } else {
            security.capabilities.push_back(written[i]);
        }
    }
    // Sorted and unique is the normal form; to name one twice is harmless and no mistake.
    std::sort(security.capabilities.begin(), security.capabilities.end());
    const auto end = std::unique(security.capabilities.begin(), security.capabilities.end());
    security.capabilities.erase(end, security.capabilities.end());
    return security;
}

Lifecycle read_lifecycle(Reader table)
{
    Lifecycle lifecycle;
    lifecycle.restart = table.choice<RestartPolicy>("restart").value_or(RestartPolicy::no);
    lifecycle.backoff = table.duration("backoff").value_or(lifecycle.backoff);
    lifecycle.max_restarts = table.small("max_restarts");
    lifecycle.stop_timeout = table.duration("stop_timeout").value_or(lifecycle.stop_timeout);
    lifecycle.autostart = table.flag("autostart").value_or(false);
    lifecycle.ttl = table.duration("ttl");
    lifecycle.idle_timeout = table.duration("idle_timeout");
    // A table that is there means a check, even an empty one (argv is then missing).
    if (table.has("health")) {
        Reader inner = table.table("health");
        Health health;
        health.argv = inner.texts("argv");
        health.interval = inner.duration("interval").value_or(health.interval);
        health.timeout = inner.duration("timeout").value_or(health.timeout);
        health.retries = inner.small("retries").value_or(health.retries);
        lifecycle.health = std::move(health);
    }
    return lifecycle;
}

std::vector<Secret> read_secrets(const Reader& table)
{
    std::vector<Secret> secrets;
    // keys() is sorted, so the list is, as types.hpp says.
    for (const std::string& name : table.keys()) {
        const Reader inner = table.table(name);
        Secret secret{name, inner.text("env"), std::nullopt};
        if (auto file = inner.text("file")) secret.file = GuestPath(*std::move(file));
        secrets.push_back(std::move(secret));
    }
    return secrets;
}

Profile read(Document& document)
{
    Reader root(document);
    Profile profile;
    profile.name = root.text("name").value_or("");
    profile.labels = read_texts(root.table("labels"));
    // The strongest is what is meant when nothing is said (law 2).
    profile.isolation = root.choice<Isolation>("isolation").value_or(Isolation::microvm);
    profile.driver = root.choice<Driver>("driver");
    profile.process = read_process(root.table("process"));
    profile.rootfs = read_rootfs(root.table("rootfs"));
    for (const Reader& item : root.tables("mount")) profile.mounts.push_back(read_mount(item));
    for (const Reader& item : root.tables("mask")) {
        // "" is refused by check(), with the place.
        profile.masks.push_back({GuestPath(item.text("path").value_or(""))});
    }
    profile.network = read_network(root.table("network"), document);
    profile.resources = read_resources(root.table("resources"));
    profile.security = read_security(root.table("security"));
    profile.lifecycle = read_lifecycle(root.table("lifecycle"));
    profile.secrets = read_secrets(root.table("secrets"));
    Reader microvm = root.table("microvm");
    profile.microvm.cpus = microvm.small("cpus");
    profile.microvm.memory = microvm.size("memory");
    return profile;
}

}  // namespace

ParsedProfile parse_profile(std::string_view toml, std::string_view file, Schema schema)
{
    ParsedProfile result;
    Document document = read_toml(toml, file);
    if (document.parsed) {
        // First: the reader skips values of the wrong type, because they have been complained about
        // here.
        if (schema == Schema::check) check_document(document, "profile");
        // Runs over a document with mistakes, too: all of them are reported at once.
        Profile profile = read(document);
        // add_new: a key that the schema has refused is not judged again.
        add_new(document.diagnostics, check(profile, document.where));
        if (document.diagnostics.empty()) {
            result.profile = LocatedProfile{std::move(profile), std::move(document.where)};
        }
    }
    result.diagnostics = std::move(document.diagnostics);
    sort(result.diagnostics);
    return result;
}

}  // namespace sandbox::profile
