// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "canon/json.hpp"
#include "diagnostics.hpp"
#include "profile/profile.hpp"

// An overlay from a less trusted place: refused with located diagnostics, or the result grants
// nothing that the base did not. Applying it twice is applying it once.
namespace sandbox::fuzz {

namespace {

using profile::Profile;

constexpr std::string_view kBase = R"(version = 1
name = "base"
isolation = "sandbox"
[process]
argv = ["/bin/true"]
timeout = "1m"
umask = "0027"
rlimits = { nofile = 1024, core = 0 }
[[mount]]
type = "tmpfs"
target = "/work"
size = "32MiB"
[[mount]]
type = "bind"
source = "/srv/data"
target = "/data"
read_only = false
[[mask]]
path = "/usr/share/doc"
[network]
mode = "egress"
allow = ["api.example.com:443", "*.example.net:443"]
[resources]
memory = "512MiB"
pids = 128
cpus = 2
cpuset = "0-3"
[security]
capabilities = ["CAP_NET_BIND_SERVICE", "CAP_CHOWN"]
[lifecycle]
restart = "on-failure"
max_restarts = 5
stop_timeout = "10s"
ttl = "1h"
)";

// The rest of a profile is out of an overlay's reach.
template <class T>
bool not_above(const std::optional<T>& narrow, const std::optional<T>& base)
{
    return !base || (narrow && *narrow <= *base);
}

void check_mounts(const Profile& narrow, const Profile& base)
{
    for (const profile::Mount& mount : narrow.mounts) {
        const auto of = std::ranges::find(base.mounts, mount.target, &profile::Mount::target);
        HOLDS(of != base.mounts.end());
        HOLDS(of->type == mount.type && of->source == mount.source && of->mode == mount.mode);
        HOLDS(mount.read_only || !of->read_only);
        HOLDS(not_above(mount.size, of->size));
    }
    for (const profile::Mask& mask : base.masks) {
        HOLDS(std::ranges::find(narrow.masks, mask) != narrow.masks.end());
    }
    HOLDS(narrow.rootfs.source == base.rootfs.source);
    HOLDS(narrow.rootfs.read_only || !base.rootfs.read_only);
}

void check_network(const profile::Network& narrow, const profile::Network& base)
{
    HOLDS(narrow.mode == base.mode || narrow.mode == profile::NetworkMode::none);
    for (const profile::NetworkRule& rule : narrow.rules) {
        HOLDS(rule.action == profile::RuleAction::deny ||
              std::ranges::find(base.rules, rule) != base.rules.end());
    }
    if (narrow.mode != profile::NetworkMode::none) {
        for (const profile::NetworkRule& rule : base.rules) {
            HOLDS(rule.action == profile::RuleAction::allow ||
                  std::ranges::find(narrow.rules, rule) != narrow.rules.end());
        }
    }
    for (const profile::PublishedPort& port : narrow.publish) {
        HOLDS(std::ranges::find(base.publish, port) != base.publish.end());
    }
}

void check_process(const Profile& narrow, const Profile& base)
{
    HOLDS(narrow.process.argv == base.process.argv && narrow.process.env == base.process.env);
    HOLDS(narrow.process.user == base.process.user && narrow.process.cwd == base.process.cwd);
    HOLDS(not_above(narrow.process.timeout, base.process.timeout));
    HOLDS((base.process.umask & ~narrow.process.umask) == 0);
    for (const auto& [name, limit] : base.process.rlimits) {
        HOLDS(narrow.process.rlimits.at(name) <= limit);
    }
    for (const std::string& one : narrow.security.capabilities) {
        HOLDS(std::ranges::find(base.security.capabilities, one) !=
              base.security.capabilities.end());
    }
    HOLDS(narrow.security.seccomp >= base.security.seccomp);
    HOLDS(narrow.isolation == base.isolation && narrow.driver == base.driver);
    HOLDS(narrow.secrets == base.secrets && narrow.name == base.name);
}

void check_limits(const Profile& narrow, const Profile& base)
{
    HOLDS(not_above(narrow.resources.memory, base.resources.memory));
    // The base limits memory and names no swap: then there is none.
    HOLDS(narrow.resources.swap.value_or(sandbox::Bytes{}) == sandbox::Bytes{});
    HOLDS(not_above(narrow.resources.cpus, base.resources.cpus));
    HOLDS(not_above(narrow.resources.disk, base.resources.disk));
    HOLDS(narrow.resources.pids <= base.resources.pids);
    HOLDS(narrow.lifecycle.restart <= base.lifecycle.restart);
    HOLDS(narrow.lifecycle.restart == profile::RestartPolicy::no ||
          not_above(narrow.lifecycle.max_restarts, base.lifecycle.max_restarts));
    HOLDS(narrow.lifecycle.stop_timeout <= base.lifecycle.stop_timeout);
    HOLDS(not_above(narrow.lifecycle.ttl, base.lifecycle.ttl));
    HOLDS(base.lifecycle.autostart || !narrow.lifecycle.autostart);
    // The base's is "0-3".
    HOLDS(narrow.resources.cpuset.has_value());
    HOLDS(narrow.resources.cpuset->find_first_not_of("0123-,") == std::string::npos);
}

}  // namespace

FUZZ_TARGET(overlay)
{
    static const profile::ParsedProfile base = profile::parse_profile(kBase, "base.toml");
    HOLDS(base.profile.has_value());
    const auto result = profile::apply_overlay(*base.profile, input, kFileName);
    HOLDS(result.profile.has_value() == result.diagnostics.empty());
    for (const Diagnostic& one : result.diagnostics) {
        HOLDS(input.empty() || lies_in(one.at, input) || one.at.file == "base.toml");
        HOLDS(is_safe_text(format(one), ""));
    }
    if (!result.profile) return;
    check_process(result.profile->profile, base.profile->profile);
    check_mounts(result.profile->profile, base.profile->profile);
    check_network(result.profile->profile.network, base.profile->profile.network);
    check_limits(result.profile->profile, base.profile->profile);
    const auto normal = profile::from_json(profile::to_json(result.profile->profile));
    HOLDS(normal.has_value() && *normal == result.profile->profile);
}

}  // namespace sandbox::fuzz
