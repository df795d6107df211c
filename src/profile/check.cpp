// SPDX-License-Identifier: Apache-2.0
#include "profile/check.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "profile/document.hpp"
#include "profile/host.hpp"
#include "profile/normal.hpp"
#include "profile/profile.hpp"
#include "profile/protected.hpp"

namespace sandbox::profile {

namespace {

constexpr std::size_t kMostArguments = 4096;
constexpr std::size_t kMostVariables = 1024;
constexpr std::size_t kMostLabels = 64;
constexpr std::size_t kMostMounts = 256;
constexpr std::size_t kMostRules = 1024;
constexpr std::size_t kMostPorts = 64;
constexpr Millis kLongest{3'153'600'000'000};  // 100 years, as parse_duration

// Trees the kernel fills, inside as well as outside: nothing is laid over them.
constexpr std::string_view kKernelTrees[] = {"/proc", "/sys", "/dev"};

class Checker {
public:
    Checker(const Profile& profile, const Locations& where) : profile_(profile), where_(where) {}

    std::vector<Diagnostic> run()
    {
        identity();
        process();
        rootfs();
        for (std::size_t i = 0; i < profile_.mounts.size(); ++i) mount(i);
        masks();
        network();
        resources();
        security();
        lifecycle();
        secrets();
        counts();
        sort(found_);
        return std::move(found_);
    }

private:
    void refuse(std::string code, const std::string& key, std::string message,
                std::string hint = {})
    {
        found_.push_back(
            {std::move(code), key, locate(where_, key), std::move(message), std::move(hint)});
    }

    void refuse(const std::string& key, const std::optional<Flaw>& flaw)
    {
        if (flaw) refuse(flaw->code, key, flaw->message, flaw->hint);
    }

    void most(const std::string& key, std::size_t count, std::size_t limit)
    {
        if (count <= limit) return;
        refuse("too-many", key,
               "has " + std::to_string(count) + " entries, at most " + std::to_string(limit));
    }

    void positive(const std::string& key, const std::optional<Millis>& value)
    {
        if (!value) return;
        if (*value <= Millis{0}) refuse("out-of-range", key, "must be longer than 0");
        if (*value > kLongest) refuse("out-of-range", key, "must not be longer than 100 years");
    }

    void within(const std::string& key, std::uint64_t value, std::uint64_t low, std::uint64_t high)
    {
        if (value >= low && value <= high) return;
        if (value == 0) return refuse("out-of-range", key, "must be more than 0");
        refuse("out-of-range", key,
               std::to_string(value) + " is not between " + std::to_string(low) + " and " +
                   std::to_string(high));
    }

    void identity()
    {
        refuse("name", flaw_in_label(profile_.name));
        for (const auto& [key, value] : profile_.labels) {
            const std::string place = member_path("labels", key);
            if (key.empty() || key.size() > 63) {
                refuse("bad-name", place, "a label's key has 1 to 63 characters");
            }
            refuse(place, flaw_in_text(key));
            refuse(place, flaw_in_text(value));
        }
    }

    void counts()
    {
        most("labels", profile_.labels.size(), kMostLabels);
        most("process.env", profile_.process.env.size(), kMostVariables);
        most("mount", profile_.mounts.size(), kMostMounts);
        most("mask", profile_.masks.size(), kMostMounts);
        most("network.rule", profile_.network.rules.size(), 3 * kMostRules);
        most("network.publish", profile_.network.publish.size(), kMostPorts);
        most("secrets", profile_.secrets.size(), kMostLabels);
    }

    void argv(const std::string& key, const std::vector<std::string>& argv)
    {
        most(key, argv.size(), kMostArguments);
        if (argv.front().empty()) {
            refuse("empty-value", item_path(key, 0), "the program must not be empty");
        }
        std::size_t total = 0;
        for (std::size_t i = 0; i < argv.size(); ++i) {
            const std::string place = item_path(key, i);
            total += argv[i].size() + 1;
            if (argv[i].find('\0') != std::string::npos) {
                refuse("control-character", place, "an argument cannot hold a NUL character");
            }
            if (argv[i].size() < kMostItemBytes) continue;
            refuse("too-long", place,
                   "an argument has " + std::to_string(argv[i].size()) +
                       " bytes; Linux takes less than 131072",
                   "put it into a file");
        }
        if (total > kMostArgvBytes) {
            refuse("too-long", key,
                   "all arguments together have " + std::to_string(total) +
                       " bytes, at most 1048576");
        }
    }

    void process()
    {
        const Process& process = profile_.process;
        if (process.idle && !process.argv.empty()) {
            refuse("contradiction", "process.idle", "an idle sandbox has no argv",
                   "leave one of the two out");
        } else if (!process.idle && process.argv.empty()) {
            refuse("missing-key", "process.argv", "a program must be given",
                   "or say idle = true for a sandbox without one");
        }
        if (!process.argv.empty()) argv("process.argv", process.argv);
        if (process.idle && process.terminal) {
            refuse("contradiction", "process.terminal", "an idle sandbox has no terminal",
                   "a session asks for its own");
        }
        std::size_t total = 0;
        for (const auto& [name, value] : process.env) {
            const std::string place = member_path("process.env", name);
            refuse(place, flaw_in_env_name(name));
            if (value.find('\0') != std::string::npos) {
                refuse("control-character", place, "a variable cannot hold a NUL character");
            }
            // "NAME=value" and a NUL are one item to the kernel.
            const std::size_t bytes = name.size() + value.size() + 2;
            total += bytes;
            if (bytes <= kMostItemBytes) continue;
            refuse("too-long", place,
                   "name and value have " + std::to_string(bytes) + " bytes, at most 131072");
        }
        if (total > kMostArgvBytes) {
            refuse("too-long", "process.env",
                   "all variables together have " + std::to_string(total) +
                       " bytes, at most 1048576");
        }
        refuse("process.cwd", flaw_in_path(process.cwd.str()));
        within("process.umask", process.umask, 0, 0777);
        positive("process.timeout", process.timeout);
        const auto known = rlimit_names();
        for (const auto& [name, value] : process.rlimits) {
            const std::string place = member_path("process.rlimits", name);
            if (std::find(known.begin(), known.end(), name) == known.end()) {
                refuse("unknown-key", place, "no limit of setrlimit(2) has this name");
            }
            within(place, value, 0, kMostInteger);
        }
    }

    void rootfs()
    {
        const std::string key = "rootfs.source";
        if (const auto* dir = std::get_if<DirRootfs>(&profile_.rootfs.source)) {
            const auto flaw = flaw_in_path(dir->path.str());
            refuse(key, flaw);
            if (!flaw) guard(key, dir->path.str());
        }
        if (const auto* image = std::get_if<ImageRootfs>(&profile_.rootfs.source)) {
            if (image->reference.empty()) {
                refuse("empty-value", key, "the image reference is empty", "image:NAME");
            }
            refuse(key, flaw_in_text(image->reference));
        }
    }

    void guard(const std::string& key, const std::string& source)
    {
        const auto guarded = protected_by(source);
        if (!guarded) return;
        std::string why = "\"" + source + "\" is protected";
        if (is_path_prefix(source, *guarded) && source != *guarded) {
            why = "\"" + source + "\" contains " + *guarded + ", which is protected";
        }
        refuse("protected-source", key, why,
               "grant the folder that is needed, not what is above it");
    }

    // A place inside where something of ours may appear.
    bool target(const std::string& key, const std::string& path)
    {
        if (const auto flaw = flaw_in_path(path)) {
            refuse(key, flaw);
            return false;
        }
        if (path == "/") {
            refuse("bad-target", key, "\"/\" is the root itself", "see rootfs.source");
            return false;
        }
        for (const std::string_view tree : kKernelTrees) {
            if (!is_path_prefix(tree, path)) continue;
            refuse("bad-target", key,
                   "\"" + path + "\" lies in " + std::string(tree) + ", which is always ours");
            return false;
        }
        return true;
    }

    void mount(std::size_t index)
    {
        const Mount& mount = profile_.mounts[index];
        const std::string key = item_path("mount", index);
        if (target(key + ".target", mount.target.str())) {
            for (std::size_t i = 0; i < index; ++i) {
                if (profile_.mounts[i].target != mount.target) continue;
                refuse("repeated", key + ".target",
                       "mount[" + std::to_string(i) + "] has the same target");
                break;
            }
        }
        mount_source(mount, key + ".source");
        if (mount.type != MountType::tmpfs) {
            if (mount.size) refuse("contradiction", key + ".size", "only a tmpfs has a size");
            if (mount.mode) refuse("contradiction", key + ".mode", "only a tmpfs has a mode");
            if (mount.type == MountType::bind && !mount.read_only &&
                profile_.process.user.uid == 0) {
                refuse("writable-bind-as-root", key + ".read_only",
                       "a writable bind and user 0 together would make files of root on the host",
                       "give the process another user, or make the bind read-only");
            }
            return;
        }
        if (mount.size) within(key + ".size", mount.size->count, 1, kMostInteger);
        if (mount.mode) within(key + ".mode", *mount.mode, 0, 01777);
    }

    void mount_source(const Mount& mount, const std::string& key)
    {
        switch (mount.type) {
        case MountType::tmpfs:
            if (!mount.source.empty()) refuse("contradiction", key, "a tmpfs has no source");
            return;
        case MountType::volume:
            if (mount.source.empty()) return refuse("missing-key", key, "a volume needs its name");
            return refuse(key, flaw_in_label(mount.source));
        case MountType::bind:
            if (mount.source.empty()) return refuse("missing-key", key, "a bind needs a host path");
            if (const auto flaw = flaw_in_path(mount.source)) return refuse(key, flaw);
            return guard(key, mount.source);
        }
    }

    void masks()
    {
        std::set<std::string> seen;
        for (std::size_t i = 0; i < profile_.masks.size(); ++i) {
            const std::string key = item_path("mask", i) + ".path";
            const std::string& path = profile_.masks[i].path.str();
            if (target(key, path) && !seen.insert(path).second) {
                refuse("repeated", key, "\"" + path + "\" is masked twice");
            }
        }
    }

    void network()
    {
        const Network& network = profile_.network;
        const bool egress = network.mode == NetworkMode::egress;
        if (!egress && !network.rules.empty()) {
            refuse("contradiction", rules_key(),
                   "rules hold only with mode = \"egress\", found \"" +
                       std::string(to_string(network.mode)) + "\"",
                   "say mode = \"egress\" or leave the rules out");
        }
        if (!egress && !network.publish.empty()) {
            refuse("contradiction", "network.publish",
                   "ports are published only with mode = \"egress\"");
        }
        for (std::size_t i = 0; i < network.rules.size(); ++i) {
            const NetworkRule& rule = network.rules[i];
            const auto host = canonical_host(rule.host);
            if (!host || *host != rule.host) {
                refuse("bad-host", "network.rule[" + std::to_string(i) + "].host",
                       host ? "not in canonical form" : host.error().message());
            }
            refuse("network.rule[" + std::to_string(i) + "].reason", flaw_in_text(rule.reason));
        }
        std::set<std::pair<std::string, std::uint16_t>> taken;
        for (std::size_t i = 0; i < network.publish.size(); ++i) {
            const PublishedPort& port = network.publish[i];
            const std::string key = item_path("network.publish", i);
            if (!taken.emplace(port.host_address, port.host_port).second) {
                refuse("repeated", key + ".host", "this address and port are published twice");
            }
            within(key + ".guest", port.guest_port, 1, 65535);
        }
    }

    // Where the rules were written, for the one complaint about all of them.
    std::string rules_key() const
    {
        for (const char* key : {"network.allow", "network.deny"}) {
            if (where_.contains(key)) return key;
        }
        return "network.rule";
    }

    void resources()
    {
        const Resources& resources = profile_.resources;
        const auto size = [&](const char* key, const std::optional<Bytes>& value,
                              std::uint64_t low) {
            if (value) within(std::string("resources.") + key, value->count, low, kMostInteger);
        };
        size("memory", resources.memory, 1);
        size("swap", resources.swap, 0);
        size("disk", resources.disk, 1);
        if (resources.cpus) within("resources.cpus", resources.cpus->count, 1, 8'192'000);
        if (resources.cpu_weight) within("resources.cpu_weight", *resources.cpu_weight, 1, 10000);
        if (resources.io_weight) within("resources.io_weight", *resources.io_weight, 1, 10000);
        // kernel/pid.c PID_MAX_LIMIT on 64 bits
        within("resources.pids", resources.pids, 1, 4'194'304);
        if (resources.cpuset && canonical_cpuset(*resources.cpuset) != resources.cpuset) {
            refuse("bad-cpuset", "resources.cpuset", "not a list of CPUs such as \"0-1,4\"");
        }
        if (profile_.microvm.cpus) within("microvm.cpus", *profile_.microvm.cpus, 1, 255);
        if (profile_.microvm.memory) {
            within("microvm.memory", profile_.microvm.memory->count, 1, kMostInteger);
        }
    }

    void security()
    {
        const auto known = capability_names();
        const auto& list = profile_.security.capabilities;
        for (std::size_t i = 0; i < list.size(); ++i) {
            const std::string key = item_path("security.capabilities", i);
            if (std::find(known.begin(), known.end(), list[i]) == known.end()) {
                refuse("bad-value", key, "no capability has this name");
            } else if (i > 0 && list[i] <= list[i - 1]) {
                refuse("repeated", key, "capabilities are sorted and listed once");
            }
        }
    }

    void lifecycle()
    {
        const Lifecycle& lifecycle = profile_.lifecycle;
        if (lifecycle.restart == RestartPolicy::no && lifecycle.max_restarts) {
            refuse("contradiction", "lifecycle.max_restarts",
                   "nothing restarts with restart = \"no\"");
        }
        if (lifecycle.max_restarts) {
            within("lifecycle.max_restarts", *lifecycle.max_restarts, 0, 1'000'000);
        }
        positive("lifecycle.backoff", lifecycle.backoff);
        if (lifecycle.stop_timeout < Millis{0} || lifecycle.stop_timeout > kLongest) {
            refuse("out-of-range", "lifecycle.stop_timeout", "must not be longer than 100 years");
        }
        positive("lifecycle.ttl", lifecycle.ttl);
        positive("lifecycle.idle_timeout", lifecycle.idle_timeout);
        if (!lifecycle.health) return;
        const Health& health = *lifecycle.health;
        if (health.argv.empty()) {
            refuse("missing-key", "lifecycle.health.argv", "a program must be given");
        } else {
            argv("lifecycle.health.argv", health.argv);
        }
        positive("lifecycle.health.interval", health.interval);
        positive("lifecycle.health.timeout", health.timeout);
        within("lifecycle.health.retries", health.retries, 1, 1000);
    }

    void secrets()
    {
        std::set<std::string> used;
        for (const Secret& secret : profile_.secrets) {
            const std::string key = member_path("secrets", secret.name);
            refuse(key, flaw_in_env_name(secret.name));
            if (secret.env.has_value() == secret.file.has_value()) {
                refuse("contradiction", key, "a secret appears in exactly one place",
                       "{ env = \"NAME\" } or { file = \"/run/secrets/name\" }");
            }
            if (secret.env) {
                refuse(key + ".env", flaw_in_env_name(*secret.env));
                if (profile_.process.env.contains(*secret.env) ||
                    !used.insert(*secret.env).second) {
                    refuse("repeated", key + ".env",
                           "the variable \"" + *secret.env + "\" is set elsewhere too");
                }
            }
            if (secret.file && target(key + ".file", secret.file->str()) &&
                !used.insert(secret.file->str()).second) {
                refuse("repeated", key + ".file", "two secrets appear in this file");
            }
        }
    }

    const Profile& profile_;
    const Locations& where_;
    std::vector<Diagnostic> found_;
};

}  // namespace

std::vector<Diagnostic> check(const Profile& profile, const Locations& where)
{
    return Checker(profile, where).run();
}

}  // namespace sandbox::profile
