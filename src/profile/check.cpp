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

// Ceilings of lists. A profile of hand-written size never meets them; they bound the work for a
// file that was made to be large, also where it comes as part of a plan (JSON) and not as TOML.
constexpr std::size_t kMostArguments = 4096;
constexpr std::size_t kMostVariables = 1024;
constexpr std::size_t kMostLabels = 64;
constexpr std::size_t kMostMounts = 256;
constexpr std::size_t kMostRules = 1024;
constexpr std::size_t kMostPorts = 64;
constexpr Millis kLongest{3'153'600'000'000};  // 100 years, as parse_duration

// Trees the kernel fills, inside as well as outside: nothing is laid over them.
constexpr std::string_view kKernelTrees[] = {"/proc", "/sys", "/dev"};

// All complaints of one profile, in one pass. Each method looks at one table and stops at nothing.
class Checker {
public:
    Checker(const Profile& profile, const Locations& where) : profile_(profile), where_(where) {}

    std::vector<Diagnostic> run()
    {
        // In any order: the result is sorted by place.
        identity();
        process();
        rootfs();
        // By index: a complaint names it, and "repeated" looks at those before.
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

    // One complaint for the list and none for its items, which may be thousands.
    void most(const std::string& key, std::size_t count, std::size_t limit)
    {
        if (count <= limit) return;
        refuse("too-many", key,
               "has " + std::to_string(count) + " entries, at most " + std::to_string(limit));
    }

    // 0 would mean "at once" to some readers and "never" to others.
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

    // The host name inside and a part of paths and cgroup names: a DNS label is safe in all of
    // them.
    void identity()
    {
        refuse("name", flaw_in_label(profile_.name));
        for (const auto& [key, value] : profile_.labels) {
            const std::string place = member_path("labels", key);
            // 63: a DNS label's length, so that labels can go where names can.
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
        // Three times: "deny" makes a tcp and a udp rule of one entry, and rule tables have their
        // own.
        most("network.rule", profile_.network.rules.size(), 3 * kMostRules);
        most("network.publish", profile_.network.publish.size(), kMostPorts);
        most("secrets", profile_.secrets.size(), kMostLabels);
    }

    void argv(const std::string& key, const std::vector<std::string>& argv)
    {
        most(key, argv.size(), kMostArguments);
        // Requires that the list is not empty; the callers see to it.
        if (argv.front().empty()) {
            refuse("empty-value", item_path(key, 0), "the program must not be empty");
        }
        std::size_t total = 0;
        for (std::size_t i = 0; i < argv.size(); ++i) {
            const std::string place = item_path(key, i);
            // With the NUL that execve(2) counts.
            total += argv[i].size() + 1;
            if (argv[i].find('\0') != std::string::npos) {
                refuse("control-character", place, "an argument cannot hold a NUL character");
            }
            // Less than: MAX_ARG_STRLEN counts the NUL, too.
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
        // An empty list was told above, if at all.
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
        // Only its form: whether the folder exists is known inside only.
        refuse("process.cwd", flaw_in_path(process.cwd.str()));
        within("process.umask", process.umask, 0, 0777);
        positive("process.timeout", process.timeout);
        const auto known = rlimit_names();
        for (const auto& [name, value] : process.rlimits) {
            const std::string place = member_path("process.rlimits", name);
            if (std::find(known.begin(), known.end(), name) == known.end()) {
                refuse("unknown-key", place, "no limit of setrlimit(2) has this name");
            }
            // A limit is an integer in JSON; RLIM_INFINITY cannot be written and is not needed, a
            // profile just leaves the limit out.
            within(place, value, 0, kMostInteger);
        }
    }

    void rootfs()
    {
        const std::string key = "rootfs.source";
        if (const auto* dir = std::get_if<DirRootfs>(&profile_.rootfs.source)) {
            const auto flaw = flaw_in_path(dir->path.str());
            refuse(key, flaw);
            // Only of a path in normal form: a prefix of another form proves nothing.
            if (!flaw) guard(key, dir->path.str());
        }
        if (const auto* image = std::get_if<ImageRootfs>(&profile_.rootfs.source)) {
            if (image->reference.empty()) {
                refuse("empty-value", key, "the image reference is empty", "image:NAME");
            }
            refuse(key, flaw_in_text(image->reference));
        }
    }

    // Before any file is touched: what the path leads to is checked again at the launch, through a
    // descriptor.
    void guard(const std::string& key, const std::string& source)
    {
        const auto guarded = protected_by(source);
        if (!guarded) return;
        std::string why = "\"" + source + "\" is protected";
        // Said apart: the folder itself looks harmless, and what lies in it is not.
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
            // Quadratic in at most 256 mounts; each target is compared with those before it.
            for (std::size_t i = 0; i < index; ++i) {
                if (profile_.mounts[i].target != mount.target) continue;
                refuse("repeated", key + ".target",
                       "mount[" + std::to_string(i) + "] has the same target");
                break;
            }
        }
        mount_source(mount, key + ".source");
        if (mount.type != MountType::tmpfs) {
            // A key that would be ignored is refused: nothing that a profile says may have no
            // effect (law 1).
            if (mount.size) refuse("contradiction", key + ".size", "only a tmpfs has a size");
            if (mount.mode) refuse("contradiction", key + ".mode", "only a tmpfs has a mode");
            // A bind maps the profile's user to the same number outside (idmapped, or the overflow
            // id for root): whatever user 0 could write there would be root's.
            if (mount.type == MountType::bind && !mount.read_only &&
                profile_.process.user.uid == 0) {
                refuse("writable-bind-as-root", key + ".read_only",
                       "a writable bind and user 0 together would make files of root on the host",
                       "give the process another user, or make the bind read-only");
            }
            return;
        }
        if (mount.size) within(key + ".size", mount.size->count, 1, kMostInteger);
        // 01777: permission bits and the sticky bit, as /tmp has. No set-user-id on a file system
        // of ours.
        if (mount.mode) within(key + ".mode", *mount.mode, 0, 01777);
    }

    void mount_source(const Mount& mount, const std::string& key)
    {
        // Exhaustive: the compiler names this place when a type is added.
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

    // A mask under a mount is fine: the mask is laid on top.
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
        // Rules that hold nothing would look like a boundary.
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
            // The reader has made it canonical; a plan that was edited by hand has not gone through
            // the reader.
            const auto host = canonical_host(rule.host);
            if (!host || *host != rule.host) {
                refuse("bad-host", "network.rule[" + std::to_string(i) + "].host",
                       host ? "not in canonical form" : host.error().message());
            }
            refuse("network.rule[" + std::to_string(i) + "].reason", flaw_in_text(rule.reason));
        }
        // One address and port can be bound once, whatever leads to it inside.
        std::set<std::pair<std::string, std::uint16_t>> taken;
        for (std::size_t i = 0; i < network.publish.size(); ++i) {
            const PublishedPort& port = network.publish[i];
            const std::string key = item_path("network.publish", i);
            if (!taken.emplace(port.host_address, port.host_port).second) {
                refuse("repeated", key + ".host", "this address and port are published twice");
            }
            // Port 0 means "any" to bind(2), which is nothing to publish.
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
        // The upper bound keeps the number exact in JSON (RFC 7493, section 2.2).
        const Resources& resources = profile_.resources;
        const auto size = [&](const char* key, const std::optional<Bytes>& value,
                              std::uint64_t low) {
            if (value) within(std::string("resources.") + key, value->count, low, kMostInteger);
        };
        size("memory", resources.memory, 1);
        size("swap", resources.swap, 0);
        size("disk", resources.disk, 1);
        // In thousandths: as many CPUs as the kernel can have (CONFIG_NR_CPUS, 8192).
        if (resources.cpus) within("resources.cpus", resources.cpus->count, 1, 8'192'000);
        if (resources.cpu_weight) within("resources.cpu_weight", *resources.cpu_weight, 1, 10000);
        if (resources.io_weight) within("resources.io_weight", *resources.io_weight, 1, 10000);
        // kernel/pid.c PID_MAX_LIMIT on 64 bits
        within("resources.pids", resources.pids, 1, 4'194'304);
        if (resources.cpuset && canonical_cpuset(*resources.cpuset) != resources.cpuset) {
            refuse("bad-cpuset", "resources.cpuset", "not a list of CPUs such as \"0-1,4\"");
        }
        // An xAPIC id is one byte, and 255 means all processors.
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
                // Sorted and unique is the normal form: two profiles that mean the same have the
                // same digest.
                refuse("repeated", key, "capabilities are sorted and listed once");
            }
        }
    }

    void lifecycle()
    {
        const Lifecycle& lifecycle = profile_.lifecycle;
        // Also 0: a number that has no effect is a contradiction.
        if (lifecycle.restart == RestartPolicy::no && lifecycle.max_restarts) {
            refuse("contradiction", "lifecycle.max_restarts",
                   "nothing restarts with restart = \"no\"");
        }
        if (lifecycle.max_restarts) {
            // A million at one a second are eleven days: more is "always", without a number.
            within("lifecycle.max_restarts", *lifecycle.max_restarts, 0, 1'000'000);
        }
        positive("lifecycle.backoff", lifecycle.backoff);
        // 0 is allowed here: SIGKILL at once.
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
        // A thousand failures in a row are no verdict any more.
        within("lifecycle.health.retries", health.retries, 1, 1000);
    }

    void secrets()
    {
        // Variables and files in one set: a name has no '/' and a path begins with one.
        std::set<std::string> used;
        for (const Secret& secret : profile_.secrets) {
            const std::string key = member_path("secrets", secret.name);
            refuse(key, flaw_in_env_name(secret.name));
            // Neither would give it to nobody, both would be two places to leak from.
            if (secret.env.has_value() == secret.file.has_value()) {
                refuse("contradiction", key, "a secret appears in exactly one place",
                       "{ env = \"NAME\" } or { file = \"/run/secrets/name\" }");
            }
            if (secret.env) {
                refuse(key + ".env", flaw_in_env_name(*secret.env));
                // A plain variable of the same name would win or lose by the order in which they
                // are set.
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
    // A copy of neither is made; both must live as long as the call.
    return Checker(profile, where).run();
}

}  // namespace sandbox::profile
