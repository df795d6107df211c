// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "profile/check.hpp"
#include "profile/profile.hpp"
#include "profile/protected.hpp"
#include "sample.hpp"

namespace sandbox::profile {

namespace {

LocatedProfile base(std::string_view text)
{
    auto parsed = parse_profile(text, "profile.toml");
    EXPECT_TRUE(parsed.profile) << format(parsed.diagnostics.front());
    return parsed.profile.value_or(LocatedProfile{});
}

ParsedProfile overlay(const LocatedProfile& profile, const std::string& fragment)
{
    return apply_overlay(profile, "version = 1\n" + fragment, "overlay.toml");
}

template <class T>
bool at_most(const std::optional<T>& inner, const std::optional<T>& outer)
{
    return !outer || (inner && *inner <= *outer);
}

// The order of permissions, written independently of the overlay code.
bool process_within(const Process& inner, const Process& outer)
{
    if (inner.argv != outer.argv || inner.idle != outer.idle || inner.env != outer.env)
        return false;
    if (inner.cwd != outer.cwd || inner.user != outer.user) return false;
    if (inner.terminal != outer.terminal || (outer.umask & ~inner.umask) != 0) return false;
    if (!at_most(inner.timeout, outer.timeout)) return false;
    return std::all_of(outer.rlimits.begin(), outer.rlimits.end(), [&](const auto& limit) {
        const auto found = inner.rlimits.find(limit.first);
        return found != inner.rlimits.end() && found->second <= limit.second;
    });
}

bool mounts_within(const Profile& inner, const Profile& outer)
{
    return std::all_of(inner.mounts.begin(), inner.mounts.end(), [&](const Mount& mount) {
        return std::any_of(outer.mounts.begin(), outer.mounts.end(), [&](const Mount& other) {
            return mount.target == other.target && mount.source == other.source &&
                   mount.type == other.type && (mount.read_only || !other.read_only) &&
                   at_most(mount.size, other.size);
        });
    });
}

bool network_within(const Network& inner, const Network& outer)
{
    if (inner.mode == NetworkMode::none) return inner.rules.empty() && inner.publish.empty();
    if (inner.mode != outer.mode || inner.publish != outer.publish) return false;
    for (const NetworkRule& rule : inner.rules) {
        const bool old = std::find(outer.rules.begin(), outer.rules.end(), rule) !=
                         outer.rules.end();
        if (rule.action == RuleAction::allow && !old) return false;
    }
    return std::all_of(outer.rules.begin(), outer.rules.end(), [&](const NetworkRule& rule) {
        return std::find(inner.rules.begin(), inner.rules.end(), rule) != inner.rules.end();
    });
}

std::optional<Bytes> swap_of(const Resources& resources)
{
    if (resources.swap || !resources.memory) return resources.swap;
    return Bytes{0};
}

bool resources_within(const Resources& inner, const Resources& outer)
{
    const auto weight = [](const std::optional<std::uint32_t>& value) {
        return value.value_or(100);
    };
    return at_most(inner.memory, outer.memory) && at_most(swap_of(inner), swap_of(outer)) &&
           at_most(inner.cpus, outer.cpus) && at_most(inner.disk, outer.disk) &&
           weight(inner.cpu_weight) <= weight(outer.cpu_weight) &&
           weight(inner.io_weight) <= weight(outer.io_weight) && inner.pids <= outer.pids &&
           (!outer.cpuset || (inner.cpuset && cpuset_within(*inner.cpuset, *outer.cpuset)));
}

bool lifecycle_within(const Lifecycle& inner, const Lifecycle& outer)
{
    const bool restarts = inner.restart == RestartPolicy::no ||
                          (inner.restart <= outer.restart &&
                           at_most(inner.max_restarts, outer.max_restarts));
    return restarts && inner.stop_timeout <= outer.stop_timeout &&
           (!inner.autostart || outer.autostart) && at_most(inner.ttl, outer.ttl) &&
           at_most(inner.idle_timeout, outer.idle_timeout) && inner.health == outer.health;
}

bool within(const Profile& inner, const Profile& outer)
{
    const auto& caps = outer.security.capabilities;
    const bool capabilities = std::all_of(
        inner.security.capabilities.begin(), inner.security.capabilities.end(),
        [&](const auto& name) { return std::find(caps.begin(), caps.end(), name) != caps.end(); });
    const bool masks = std::all_of(outer.masks.begin(), outer.masks.end(), [&](const Mask& mask) {
        return std::find(inner.masks.begin(), inner.masks.end(), mask) != inner.masks.end();
    });
    return capabilities && masks && inner.name == outer.name && inner.labels == outer.labels &&
           inner.isolation == outer.isolation && inner.driver == outer.driver &&
           inner.rootfs.source == outer.rootfs.source &&
           (inner.rootfs.read_only || !outer.rootfs.read_only) &&
           inner.security.seccomp >= outer.security.seccomp && inner.secrets == outer.secrets &&
           inner.microvm == outer.microvm && process_within(inner.process, outer.process) &&
           mounts_within(inner, outer) && network_within(inner.network, outer.network) &&
           resources_within(inner.resources, outer.resources) &&
           lifecycle_within(inner.lifecycle, outer.lifecycle);
}

// Some lines of an overlay, by section; about half of the values are wider than some base's.
std::string random_overlay(std::mt19937& random)
{
    static const std::vector<std::pair<std::string, std::vector<std::string>>> kSections{
        {"process",
         {"timeout = \"10s\"", "timeout = \"2h\"", "umask = \"0077\"", "umask = \"0002\"",
          "rlimits = { nofile = 16 }", "rlimits = { nofile = 90000 }", "env = { A = \"b\" }"}},
        {"rootfs", {"read_only = true", "read_only = false", "source = \"host\""}},
        {"network",
         {"mode = \"none\"", "mode = \"host\"", "deny = [\"a.example.com:*\"]",
          "deny = [\"10.0.0.1:1\"]", "allow = [\"b.example.com:1\"]"}},
        {"resources",
         {"memory = \"1MiB\"", "memory = \"1TiB\"", "swap = \"0\"", "swap = \"2MiB\"", "cpus = 0.5",
          "cpus = 64", "cpu_weight = 7", "cpu_weight = 101", "cpuset = \"1\"", "cpuset = \"0-64\"",
          "io_weight = 3", "pids = 4", "pids = 4000", "disk = \"1KiB\""}},
        {"security",
         {"seccomp = \"strict\"", "seccomp = \"default\"", "capabilities = []",
          "capabilities = [\"CAP_CHOWN\"]", "capabilities = [\"CAP_SYS_ADMIN\"]"}},
        {"lifecycle",
         {"restart = \"no\"", "restart = \"on-failure\"", "restart = \"always\"",
          "max_restarts = 1", "max_restarts = 100", "stop_timeout = \"1s\"",
          "stop_timeout = \"1h\"", "autostart = false", "ttl = \"1m\"", "idle_timeout = \"1m\"",
          "health = { argv = [\"x\"] }"}},
        {"[mask]", {"path = \"/work/secret\"", "path = \"/etc/shadow\""}},
        {"[mount]",
         {"target = \"/work\"\nread_only = true", "target = \"/tmp\"\nsize = \"1MiB\"",
          "target = \"/tmp\"\nsize = \"1TiB\"", "target = \"/cache\"\nremove = true",
          "target = \"/new\"\nread_only = true"}}};
    std::string text;
    for (const auto& [section, lines] : kSections) {
        if (random() % 3 != 0) continue;
        text += "[" + section + "]\n";
        // One line only: two of the same key would be a syntax error and test nothing.
        text += lines[random() % lines.size()] + "\n";
    }
    return text;
}

const std::vector<std::string>& bases()
{
    static const std::vector<std::string> kBases{
        std::string(kMinimal), std::string(kEveryKey),
        std::string(kMinimal) +
            "[[mount]]\ntype = \"bind\"\nsource = \"/srv/a\"\ntarget = \"/work\"\nread_only = false\n"
            "[[mount]]\ntype = \"volume\"\nsource = \"c\"\ntarget = \"/cache\"\n"
            "[network]\nmode = \"host\"\n[resources]\nmemory = \"1GiB\"\ncpuset = \"0-3\"\n"
            "[lifecycle]\nrestart = \"always\"\n"};
    return kBases;
}

}  // namespace

TEST(Overlay, IsMonotoneIdempotentAndOrderFree)
{
    std::mt19937 random(20260101);  // fixed: the same cases in every run
    std::size_t applied = 0;
    std::size_t refused = 0;
    for (int round = 0; round < 1500; ++round) {
        const LocatedProfile profile = base(bases()[random() % bases().size()]);
        const std::string first = random_overlay(random);
        const std::string second = random_overlay(random);
        const ParsedProfile once = overlay(profile, first);
        if (!once.profile) {
            ++refused;
            continue;
        }
        ++applied;
        ASSERT_TRUE(within(once.profile->profile, profile.profile)) << first;
        const ParsedProfile twice = overlay(*once.profile, first);
        // A mount that is gone cannot be removed again; everything else is idempotent.
        if (first.find("remove") == std::string::npos &&
            first.find("max_restarts") == std::string::npos) {
            ASSERT_TRUE(twice.profile) << first << format(twice.diagnostics.front());
            ASSERT_EQ(twice.profile->profile, once.profile->profile) << first;
        }
        const ParsedProfile both = overlay(*once.profile, second);
        const ParsedProfile other = overlay(profile, second);
        if (!both.profile || !other.profile) continue;
        ASSERT_TRUE(within(both.profile->profile, other.profile->profile)) << first << second;
    }
    EXPECT_GT(applied, 200U);
    EXPECT_GT(refused, 200U);
}

TEST(Overlay, AnEmptyOneChangesNothing)
{
    const LocatedProfile profile = base(kEveryKey);
    EXPECT_EQ(overlay(profile, "").profile->profile, profile.profile);
}

TEST(Overlay, NamesEveryKeyItMayNotSay)
{
    const LocatedProfile profile = base(kEveryKey);
    for (const char* line :
         {"name = \"x\"", "isolation = \"sandbox\"", "driver = \"oci\"", "labels = {}",
          "secrets = {}", "microvm = {}", "process.argv = [\"x\"]", "process.user = \"1:1\"",
          "process.env = {}", "process.cwd = \"/\"", "process.idle = true",
          "process.terminal = false", "rootfs.source = \"host\"", "network.allow = []",
          "network.rule = []", "network.publish = []", "lifecycle.health = { argv = [\"x\"] }",
          "lifecycle.backoff = \"1s\""}) {
        const auto result = overlay(profile, line);
        ASSERT_EQ(result.diagnostics.size(), 1U) << line;
        EXPECT_EQ(result.diagnostics[0].code, "overlay-key") << line;
        const std::string written(line);
        EXPECT_EQ(result.diagnostics[0].key, written.substr(0, written.find(' '))) << line;
        EXPECT_EQ(result.diagnostics[0].at.file, "overlay.toml");
        EXPECT_FALSE(result.profile);
    }
}

TEST(Overlay, TakesTheStepDownAndRefusesTheStepUp)
{
    const LocatedProfile profile = base(kEveryKey);
    const std::vector<std::pair<const char*, const char*>> cases{
        {"process.timeout = \"29s\"", "process.timeout = \"31s\""},
        {"process.umask = \"0077\"", "process.umask = \"0022\""},
        {"process.rlimits.nofile = 1023", "process.rlimits.nofile = 1025"},
        {"rootfs.read_only = true", "rootfs.read_only = false"},
        {"network.mode = \"none\"", "network.mode = \"egress\""},
        {"resources.memory = \"511MiB\"", "resources.memory = \"513MiB\""},
        {"resources.swap = \"1KiB\"", "resources.swap = \"2MiB\""},
        {"resources.cpus = 1.499", "resources.cpus = 1.501"},
        {"resources.cpu_weight = 49", "resources.cpu_weight = 51"},
        {"resources.cpuset = \"1,4\"", "resources.cpuset = \"2\""},
        {"resources.io_weight = 9", "resources.io_weight = 11"},
        {"resources.pids = 127", "resources.pids = 129"},
        {"resources.disk = \"1MiB\"", "resources.disk = \"2GiB\""},
        {"security.capabilities = [\"CAP_CHOWN\"]", "security.capabilities = [\"CAP_NET_RAW\"]"},
        {"lifecycle.restart = \"no\"", "lifecycle.restart = \"always\""},
        {"lifecycle.max_restarts = 2", "lifecycle.max_restarts = 4"},
        {"lifecycle.stop_timeout = \"4s\"", "lifecycle.stop_timeout = \"6s\""},
        {"lifecycle.autostart = false", "lifecycle.autostart = true"},
        {"lifecycle.ttl = \"1h\"", "lifecycle.ttl = \"3h\""},
        {"lifecycle.idle_timeout = \"9m\"", "lifecycle.idle_timeout = \"11m\""}};
    for (const auto& [down, up] : cases) {
        const auto narrower = overlay(profile, down);
        ASSERT_TRUE(narrower.profile) << down << format(narrower.diagnostics.front());
        EXPECT_NE(narrower.profile->profile, profile.profile) << down;
        EXPECT_TRUE(within(narrower.profile->profile, profile.profile)) << down;
        const auto wider = overlay(profile, up);
        EXPECT_FALSE(wider.profile) << up;
        EXPECT_EQ(wider.diagnostics.size(), 1U) << up;
    }
}

TEST(Overlay, HoldsUnsetLimitsToTheirMeaning)
{
    const LocatedProfile plain = base(kMinimal);
    EXPECT_TRUE(overlay(plain, "resources.memory = \"1TiB\"").profile);  // unset is no limit
    EXPECT_TRUE(overlay(plain, "resources.cpu_weight = 100").profile);   // the kernel's default
    EXPECT_FALSE(overlay(plain, "resources.cpu_weight = 101").profile);
    EXPECT_FALSE(overlay(plain, "resources.pids = 513").profile);
    EXPECT_FALSE(overlay(plain, "process.rlimits.nofile = 10").profile);  // unset is not known here
    const LocatedProfile limited = base(std::string(kMinimal) + "[resources]\nmemory = \"1MiB\"\n");
    EXPECT_TRUE(overlay(limited, "resources.swap = \"0\"").profile);
    EXPECT_FALSE(overlay(limited, "resources.swap = \"1\"").profile);  // unset means none there
}

TEST(Overlay, RemovesAMountOnlyWhereNothingComesToLight)
{
    const std::string mounts =
        "[[mount]]\ntype = \"bind\"\nsource = \"/srv/a\"\ntarget = \"/work\"\n"
        "[[mount]]\ntype = \"tmpfs\"\ntarget = \"/work/hidden\"\n"
        "[[mount]]\ntype = \"tmpfs\"\ntarget = \"/usr/local\"\n"
        "[[mount]]\ntype = \"tmpfs\"\ntarget = \"/scratch\"\n";
    const auto remove = [](const std::string& target) {
        return "[[mount]]\ntarget = \"" + target + "\"\nremove = true\n";
    };
    const LocatedProfile host = base(std::string(kMinimal) + mounts);
    EXPECT_FALSE(overlay(host, remove("/work/hidden")).profile);
    EXPECT_FALSE(overlay(host, remove("/usr/local")).profile);
    const auto gone = overlay(host, remove("/work"));
    ASSERT_TRUE(gone.profile);
    EXPECT_EQ(gone.profile->profile.mounts.size(), 3U);
    EXPECT_EQ(gone.profile->profile.mounts[0].target.str(), "/work/hidden");
    // The places of the mounts after it have moved with them.
    EXPECT_EQ(locate(gone.profile->where, "mount[2].target"),
              locate(host.where, "mount[3].target"));
    EXPECT_EQ(gone.profile->where.count("mount[3].target"), 0U);
    const LocatedProfile image = base(std::string(kMinimal) +
                                      "[rootfs]\nsource = \"dir:/srv/root\"\n" + mounts);
    EXPECT_FALSE(overlay(image, remove("/scratch")).profile);
}

TEST(Overlay, TakesTheNetworkAwayWithItsRules)
{
    const auto result = overlay(base(kEveryKey), "network.mode = \"none\"");
    ASSERT_TRUE(result.profile);
    EXPECT_EQ(result.profile->profile.network, Network{});
    EXPECT_EQ(result.profile->where.count("network.rule[0]"), 0U);
}

TEST(Overlay, PointsAtItselfForWhatItSet)
{
    const auto result = overlay(base(kEveryKey),
                                "[resources]\nmemory = \"1MiB\"\n[[mask]]\npath = \"/x\"\n");
    ASSERT_TRUE(result.profile);
    EXPECT_EQ(locate(result.profile->where, "resources.memory"),
              (SourceLocation{"overlay.toml", 3, 1}));
    EXPECT_EQ(locate(result.profile->where, "resources.pids").file, "profile.toml");
    EXPECT_EQ(locate(result.profile->where, "mask[0].path").file, "profile.toml");
    EXPECT_EQ(locate(result.profile->where, "mask[1].path"),
              (SourceLocation{"overlay.toml", 5, 1}));
}

TEST(Overlay, AMaskThatIsThereAlreadyIsNoMistake)
{
    const auto result = overlay(base(kEveryKey), "[[mask]]\npath = \"/work/.env\"\n");
    ASSERT_TRUE(result.profile);
    EXPECT_EQ(result.profile->profile.masks.size(), 1U);
}

TEST(Overlay, CannotChangeTheSchemaItIsReadBy)
{
    EXPECT_FALSE(apply_overlay(base(kMinimal), "version = 2\n", "o").profile);
    EXPECT_FALSE(apply_overlay(base(kMinimal), "", "o").profile);
    EXPECT_FALSE(apply_overlay(base(kMinimal), "not toml", "o").profile);
}

}  // namespace sandbox::profile
