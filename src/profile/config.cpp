// SPDX-License-Identifier: Apache-2.0
#include "profile/config.hpp"

#include <algorithm>

#include "base/diagnostic.hpp"
#include "base/quote.hpp"
#include "profile/check.hpp"
#include "profile/profile.hpp"
#include "profile/protected.hpp"
#include "profile/reader.hpp"

namespace sandbox::profile {

namespace {

constexpr std::uint64_t kIdsOfRange = 65536;  // a complete map, as the drivers ask for

void read_path(Reader& table, const char* key, std::string& into)
{
    const auto written = table.text(key);
    if (!written || written->empty()) return;
    if (const auto flaw = flaw_in_path(*written)) {
        table.refuse(flaw->code, key, flaw->message, flaw->hint);
        return;
    }
    into = *written;
}

// What is written replaces the built-in list: adding to it would make a driver impossible to take
// away.
void read_drivers(Reader& root, OperatorConfig& config)
{
    if (root.has("drivers")) {
        config.drivers.clear();
        for (const std::string& name : root.texts("drivers")) {
            // An unknown name has its complaint from the schema already.
            if (const auto driver = from_name<Driver>(name)) config.drivers.push_back(*driver);
        }
        // The order does not matter, and two files that mean the same should read the same.
        std::sort(config.drivers.begin(), config.drivers.end());
        const auto again = std::adjacent_find(config.drivers.begin(), config.drivers.end());
        if (again != config.drivers.end()) {
            root.refuse("repeated", "drivers",
                        "\"" + std::string(to_string(*again)) + "\" is listed twice");
        }
    }
    config.default_driver = root.choice<Driver>("default_driver").value_or(config.default_driver);
    // Also where only one of the two was written.
    const auto& drivers = config.drivers;
    if (std::find(drivers.begin(), drivers.end(), config.default_driver) == drivers.end()) {
        root.refuse("contradiction", "default_driver",
                    "\"" + std::string(to_string(config.default_driver)) +
                        "\" is not among the drivers of this host",
                    "add it to drivers or name another default_driver");
    }
}

// The schema lists the names; what they stand for is the probe's and the drivers' business.
void read_artifacts(const Reader& table, OperatorConfig& config)
{
    for (const std::string& name : table.keys()) {
        Reader entry = table.table(name);
        ArtifactPin pin;
        std::string path;
        read_path(entry, "path", path);
        pin.path = HostPath(path);
        pin.version = entry.text("version").value_or("");
        pin.sha256 = entry.text("sha256").value_or("");
        if (const auto flaw = flaw_in_text(pin.version)) {
            entry.refuse(flaw->code, "version", flaw->message, flaw->hint);
        }
        // Compared as text with what is measured: another spelling would never be equal.
        if (!pin.sha256.empty() && !canon::is_digest(pin.sha256)) {
            entry.refuse(
                "bad-digest", "sha256", "\"" + escaped(pin.sha256) + "\" is not a digest",
                "\"sha256:\" and 64 lower-case hexadecimal digits, as config init writes it");
        }
        config.artifacts[name] = std::move(pin);
    }
}

void read_ids(Reader table, OperatorConfig& config)
{
    config.id_base = table.small("base").value_or(config.id_base);
    // Both are below 2^32 each, so the product below fits 64 bits.
    config.id_ranges = table.small("ranges").value_or(config.id_ranges);
    // A range starts at a multiple of its length: its number can then be told from any id in it.
    if (config.id_base % kIdsOfRange != 0) {
        table.refuse("out-of-range", "base",
                     std::to_string(config.id_base) + " is not a multiple of 65536");
    }
    // 4294967295 is "no id" (setresuid(2)), so the last range ends below it.
    const std::uint64_t end = config.id_base + kIdsOfRange * config.id_ranges;
    if (end > UINT32_MAX) {
        table.refuse("out-of-range", "ranges", "the ranges end above the largest id, 4294967294");
    }
}

// Each has rules of its own about what lies in it, who may read it and what is swept from it.
void refuse_shared_folders(Reader& table, const std::map<std::string, std::string>& folders)
{
    for (const auto& [key, path] : folders) {
        for (const auto& [other, above] : folders) {
            if (key == other || !is_path_prefix(above, path)) continue;
            table.refuse("contradiction", key,
                         "\"" + escaped(path) + "\" lies in directories." + other,
                         "give each a folder of its own");
            return;
        }
    }
}

// Folders of this host, each outside the others.
void read_folders(Reader& table, const char* key, std::vector<std::string>& into)
{
    into = table.texts(key);
    std::sort(into.begin(), into.end());
    for (auto path = into.begin(); path != into.end(); ++path) {
        const auto outer = std::find_if(into.begin(), path, [&](const std::string& earlier) {
            return is_path_prefix(earlier, *path);
        });
        if (const auto flaw = flaw_in_path(*path)) {
            table.refuse(flaw->code, key, flaw->message, flaw->hint);
        } else if (*path == "/" || path->find(':') != std::string::npos) {
            table.refuse("bad-path", key, "\"" + escaped(*path) + "\" cannot be a folder of guests",
                         "a folder below the root, without ':' in its path");
        } else if (outer != path) {
            table.refuse("repeated", key,
                         "\"" + escaped(*path) + "\" lies in \"" + escaped(*outer) + "\"");
        }
    }
}

OperatorConfig read_config(Document& document)
{
    Reader root(document);
    OperatorConfig config;
    read_drivers(root, config);
    config.accelerator = root.text("accelerator").value_or(config.accelerator);
    // Only in words: the operator has to type that there is no boundary, not just pick an
    // accelerator.
    config.accept_emulated = root.flag("accept_emulated").value_or(false);
    if (config.accelerator == "tcg" && !config.accept_emulated) {
        root.refuse("contradiction", "accelerator",
                    "\"tcg\" emulates and promises no boundary; that must be accepted in words",
                    "say accept_emulated = true");
    }
    std::string parent;
    read_path(root, "cgroup_parent", parent);
    if (!parent.empty()) config.cgroup_parent = parent;
    // Limits of ours would then be those of the whole host.
    if (parent == "/") {
        root.refuse("bad-path", "cgroup_parent", "the root of the hierarchy is not ours to fill",
                    "such as \"/sandbox\"");
    }
    config.max_sandboxes = root.small("max_sandboxes").value_or(config.max_sandboxes);
    config.copy_limit = root.size("copy_limit");
    if (config.copy_limit && config.copy_limit->count == 0)
        root.refuse("out-of-range", "copy_limit", "must be more than 0");
    read_artifacts(root.table("artifacts"), config);
    Reader logs = root.table("logs");
    config.log_size = logs.size("size").value_or(config.log_size);
    config.log_files = logs.small("files").value_or(config.log_files);
    // 0 would keep nothing at all, silently.
    if (config.log_size.count == 0) logs.refuse("out-of-range", "size", "must be more than 0");
    read_ids(root.table("ids"), config);
    Reader directories = root.table("directories");
    for (const char* key : {"state", "run", "secrets"}) {
        std::string path;
        read_path(directories, key, path);
        // As state or run it would be created, chmod-ed and cleared.
        if (path == "/") directories.refuse("bad-path", key, "\"/\" cannot be a folder of ours");
        if (!path.empty()) config.directories[key] = path;
    }
    refuse_shared_folders(directories, config.directories);
    Reader microvm = root.table("microvm");
    config.microvm.cpus = microvm.small("cpus");
    config.microvm.memory = microvm.size("memory");
    read_folders(microvm, "stores", config.microvm_stores);
    read_folders(microvm, "shares", config.microvm_shares);
    return config;
}

// A TOML basic string (TOML 1.0, "String"): the escapes that we write are a part of its own.
std::string in_quotes(std::string_view text)
{
    std::string out = "\"";
    append_escaped(out, text);
    return out + "\"";
}

std::string line(std::string_view key, std::string_view value)
{
    return std::string(key).append(" = ").append(value) + "\n";
}

std::string spelled(bool value) { return value ? "true" : "false"; }

std::string in_list(const std::vector<std::string>& items)
{
    std::string text;
    for (const std::string& item : items) text += (text.empty() ? "" : ", ") + in_quotes(item);
    return "[" + text + "]";
}

std::string render_microvm(const OperatorConfig& config)
{
    std::string text;
    if (config.microvm.cpus) text += line("cpus", std::to_string(*config.microvm.cpus));
    if (config.microvm.memory) text += line("memory", in_quotes(format(*config.microvm.memory)));
    if (!config.microvm_stores.empty()) text += line("stores", in_list(config.microvm_stores));
    if (!config.microvm_shares.empty()) text += line("shares", in_list(config.microvm_shares));
    return text.empty() ? text : "\n[microvm]\n" + text;
}

std::string render_artifacts(const OperatorConfig& config)
{
    std::string text;
    for (const auto& [name, pin] : config.artifacts) {
        text += "\n[artifacts." + name + "]\n" + line("path", in_quotes(pin.path.str())) +
                line("version", in_quotes(pin.version)) + line("sha256", in_quotes(pin.sha256));
    }
    return text;
}

}  // namespace

ParsedConfig parse_config(std::string_view toml, std::string_view file, Schema schema)
{
    ParsedConfig result;
    Document document = read_toml(toml, file);
    if (document.parsed) {
        if (schema == Schema::check) check_document(document, "config");
        OperatorConfig config = read_config(document);
        // No half-read config: an operator who misspelt a limit must not get a host without it.
        if (document.diagnostics.empty()) {
            result.config = std::move(config);
            result.where = std::move(document.where);
        }
    }
    result.diagnostics = std::move(document.diagnostics);
    sort(result.diagnostics);
    return result;
}

std::string render_config(const OperatorConfig& config)
{
    // Every default is written out, so that an upgrade which changes one does not change this host.
    std::string drivers;
    for (const Driver driver : config.drivers) {
        drivers += (drivers.empty() ? "" : ", ") + in_quotes(to_string(driver));
    }
    std::string text = "# What this host offers to sandboxes. sandboxctl config check reads it.\n";
    text += line("version", "1");
    text += line("drivers", "[" + drivers + "]");
    text += line("default_driver", in_quotes(to_string(config.default_driver)));
    text += line("accelerator", in_quotes(config.accelerator));
    text += line("accept_emulated", spelled(config.accept_emulated));
    // Left out when unset: the place is then chosen anew on each host.
    if (config.cgroup_parent) text += line("cgroup_parent", in_quotes(*config.cgroup_parent));
    text += line("max_sandboxes", std::to_string(config.max_sandboxes));
    if (config.copy_limit) text += line("copy_limit", in_quotes(format(*config.copy_limit)));
    text += "\n[logs]\n" + line("size", in_quotes(format(config.log_size))) +
            line("files", std::to_string(config.log_files));
    text += "\n[ids]\n" + line("base", std::to_string(config.id_base)) +
            line("ranges", std::to_string(config.id_ranges));
    if (!config.directories.empty()) {
        text += "\n[directories]\n";
        for (const auto& [key, path] : config.directories) text += line(key, in_quotes(path));
    }
    return text + render_microvm(config) + render_artifacts(config);
}

}  // namespace sandbox::profile
