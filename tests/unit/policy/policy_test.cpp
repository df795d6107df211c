// SPDX-License-Identifier: Apache-2.0
#include "policy/policy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "canon/json.hpp"
#include "profile/document.hpp"
#include "profile/profile.hpp"

namespace sandbox::policy {

namespace {

LocatedBundle bundle(const std::string& name, const std::string& body)
{
    auto parsed = parse_bundle("version = 1\nname = \"" + name + "\"\n" + body,
                               "/etc/org.d/" + name + ".toml");
    EXPECT_TRUE(parsed.bundle) << format(parsed.diagnostics.front());
    return parsed.bundle.value_or(LocatedBundle{});
}

EffectivePolicy meet(const std::vector<std::string>& bodies)
{
    std::vector<LocatedBundle> bundles;
    for (const std::string& body : bodies) {
        bundles.push_back(bundle("b" + std::to_string(bundles.size()), body));
    }
    return EffectivePolicy::meet(std::move(bundles));
}

const std::vector<std::pair<std::string, std::string>>& questions()
{
    static const std::vector<std::pair<std::string, std::string>> kQuestions{
        {"drivers", "oci"},          {"drivers", "microvm"},
        {"isolation", "sandbox"},    {"isolation_classes", "shared-kernel"},
        {"network_modes", "host"},   {"network_modes", "none"},
        {"egress_hosts", "x.a.com"}, {"egress_hosts", "*.x.a.com"},
        {"egress_hosts", "b.com"},   {"mount_sources", "/srv/x"},
        {"mount_sources", "/srvx"},  {"capabilities", "CAP_CHOWN"},
        {"seccomp", "strict"},       {"seccomp", "default"},
        {"users", "1000:1000"},      {"users", "0:0"}};
    return kQuestions;
}

std::string random_body(std::mt19937& random)
{
    static const std::vector<std::string> kLines{"drivers = [\"oci\"]",
                                                 "drivers = [\"microvm\", \"oci\"]",
                                                 "drivers = []",
                                                 "network_modes = [\"none\"]",
                                                 "egress_hosts = [\"*.a.com\"]",
                                                 "egress_hosts = [\"x.a.com\"]",
                                                 "mount_sources = [\"/srv\"]",
                                                 "mount_sources = [\"/srv/x\", \"/home\"]",
                                                 "users = [\"1000:*\"]",
                                                 "users = [\"1000:1000\"]",
                                                 "seccomp = [\"strict\"]",
                                                 "capabilities = []",
                                                 "isolation_classes = [\"hardware-vm\"]",
                                                 "max.memory = \"1GiB\"",
                                                 "max.memory = \"2GiB\"",
                                                 "max.cpus = 1.5",
                                                 "max.pids = 10",
                                                 "max.pids = 20",
                                                 "max.ttl = \"1h\"",
                                                 "require.read_only_rootfs = true",
                                                 "require.log_retention = \"1h\"",
                                                 "require.log_retention = \"2h\"",
                                                 "require.cgroup_v2 = false"};
    std::vector<std::string> seen;
    std::string body;
    for (const std::string& line : kLines) {
        const std::string key = line.substr(0, line.find(' '));
        if (random() % 4 != 0 || std::find(seen.begin(), seen.end(), key) != seen.end()) continue;
        seen.push_back(key);
        body += line + "\n";
    }
    return body;
}

template <class T>
bool at_most(const std::optional<T>& inner, const std::optional<T>& outer)
{
    return !outer || (inner && *inner <= *outer);
}

}  // namespace

TEST(ParseBundle, ReadsEveryKey)
{
    const auto located = bundle(
        "base", "valid_until = \"2027-01-31\"\ndrivers = [\"oci\"]\n"
                "isolation = [\"sandbox\"]\nisolation_classes = [\"shared-kernel\"]\n"
                "network_modes = [\"none\"]\negress_hosts = [\"API.a.com\", \"2001:DB8:0::1\"]\n"
                "mount_sources = [\"/srv\"]\ncapabilities = [\"CAP_CHOWN\"]\n"
                "seccomp = [\"strict\"]\nusers = [\"1000:*\"]\n"
                "[max]\nmemory = \"1GiB\"\ncpus = 1.5\npids = 3\nttl = \"1h\"\nsandboxes = 0\n"
                "[require]\nread_only_rootfs = true\nlog_retention = \"24h\"\n"
                "cgroup_v2 = true\npinned_digests = true\n");
    const Bundle& read = located.bundle;
    EXPECT_EQ(read.name, "base");
    EXPECT_EQ(read.valid_until, "2027-01-31");
    EXPECT_EQ(read.egress_hosts, (std::set<std::string>{"api.a.com", "2001:db8::1"}));
    EXPECT_EQ(read.max.memory, Bytes{1ULL << 30});
    EXPECT_EQ(read.max.cpus, MilliCpus{1500});
    EXPECT_EQ(read.max.sandboxes, 0U);
    EXPECT_EQ(read.require.log_retention, Millis(86'400'000));
    EXPECT_TRUE(read.require.pinned_digests);
    EXPECT_EQ(located.where.at("max.memory").line, 14U);
}

TEST(ParseBundle, KeepsAbsentAndEmptyApart)
{
    const Bundle silent = bundle("a", "").bundle;
    EXPECT_FALSE(silent.drivers);
    const Bundle empty = bundle("a", "drivers = []\n").bundle;
    ASSERT_TRUE(empty.drivers);
    EXPECT_TRUE(empty.drivers->empty());
    EXPECT_NE(silent, empty);
}

TEST(ParseBundle, RefusesWhatItCannotHold)
{
    for (const char* line : {"name = \"two\"",
                             "drivers = [\"runc\"]",
                             "drivers = \"oci\"",
                             "egress_hosts = [\"*\"]",
                             "egress_hosts = [\"a.com:443\"]",
                             "mount_sources = [\"srv\"]",
                             "mount_sources = [\"/srv/\"]",
                             "mount_sources = [\"/a/../b\"]",
                             "users = [\"root\"]",
                             "users = [\"1000\"]",
                             "users = [\"*:1\"]",
                             "users = [\":*\"]",
                             "users = [\"01:*\"]",
                             "users = [\"\"]",
                             "capabilities = [\"CHOWN\"]",
                             "max.memory = 5",
                             "max.memory = \"1GB\"",
                             "max.cpus = 1.0001",
                             "max.pids = 0",
                             "max.ttl = \"1 h\"",
                             "max.disk = \"1\"",
                             "require.cgroup = true",
                             "require.log_retention = true",
                             "valid_until = \"tomorrow!!\"",
                             "valid_until = 10:00:00",
                             "driver = []"}) {
        const auto parsed = parse_bundle(std::string("version = 1\nname = \"a\"\n") + line + "\n",
                                         "f");
        EXPECT_FALSE(parsed.bundle) << line;
        EXPECT_FALSE(parsed.diagnostics.empty()) << line;
    }
    EXPECT_FALSE(parse_bundle("name = \"a\"\n", "f").bundle);
    EXPECT_FALSE(parse_bundle("version = 1\n", "f").bundle);
    EXPECT_FALSE(parse_bundle("\xff", "f").bundle);
}

TEST(ParseBundle, RefusesRepeatedItems)
{
    for (const char* line : {"drivers = [\"oci\", \"oci\"]", "users = [\"1:1\", \"1:1\"]",
                             "egress_hosts = [\"a.com\", \"A.com\"]"}) {
        const auto parsed = parse_bundle(std::string("version = 1\nname = \"a\"\n") + line + "\n",
                                         "f");
        ASSERT_EQ(parsed.diagnostics.size(), 1U) << line;
        EXPECT_EQ(parsed.diagnostics[0].code, "repeated");
    }
}

// Thousands of equal items once cost valijson a report for every pair of them.
TEST(ParseBundle, AnswersSoonForALongListOfEqualItems)
{
    std::string text = "version = 1\nname = \"a\"\nusers = [";
    for (int i = 0; i < 30'000; ++i) text += "\"*\",";
    const auto parsed = parse_bundle(text + "]\n", "f");
    EXPECT_FALSE(parsed.bundle);
    EXPECT_EQ(parsed.diagnostics.front().code, "too-many");
}

TEST(ParseBundle, TakesATomlDateForValidUntil)
{
    EXPECT_EQ(bundle("a", "valid_until = 2027-01-31\n").bundle.valid_until, "2027-01-31");
    EXPECT_EQ(bundle("a", "valid_until = 2027-01-31T01:02:03Z\n").bundle.valid_until,
              "2027-01-31T01:02:03Z");
    EXPECT_EQ(bundle("a", "valid_until = 2027-01-31T01:02:03-05:30\n").bundle.valid_until,
              "2027-01-31T01:02:03-05:30");
}

TEST(EffectivePolicy, WithoutBundlesPermitsEverything)
{
    const auto policy = EffectivePolicy::meet({});
    for (const auto& [key, value] : questions()) EXPECT_TRUE(policy.permits(key, value)) << key;
    EXPECT_TRUE(policy.decisions().empty());
    EXPECT_EQ(policy.limits(), Bundle{});
}

TEST(EffectivePolicy, AnEmptyListPermitsNothing)
{
    const auto policy = meet({"drivers = []\n"});
    EXPECT_FALSE(policy.permits("drivers", "oci"));
    EXPECT_TRUE(policy.permits("isolation", "sandbox"));
}

TEST(EffectivePolicy, MatchesMountSourcesByWholeComponentsOfNormalPaths)
{
    const auto policy = meet({"mount_sources = [\"/srv\"]\n"});
    EXPECT_TRUE(policy.permits("mount_sources", "/srv"));
    EXPECT_TRUE(policy.permits("mount_sources", "/srv/x"));
    EXPECT_FALSE(policy.permits("mount_sources", "/srvx"));
    EXPECT_FALSE(policy.permits("mount_sources", "/srv/../etc"));
    EXPECT_FALSE(policy.permits("mount_sources", "/srv//x"));
    EXPECT_EQ(policy.refuser("mount_sources", "/srv/../etc").line, 3U);
}

TEST(EffectivePolicy, FailsClosedForKeysItDoesNotKnow)
{
    const auto policy = EffectivePolicy::meet({});
    EXPECT_FALSE(policy.permits("driver", "oci"));
    EXPECT_FALSE(policy.permits("", ""));
}

TEST(EffectivePolicy, NamesTheFileAndLineThatRefuses)
{
    const auto policy = meet(
        {"drivers = [\"oci\", \"microvm\"]\n", "\n\ndrivers = [\"microvm\"]\n"});
    EXPECT_EQ(policy.refuser("drivers", "oci"), (SourceLocation{"/etc/org.d/b1.toml", 5, 1}));
    EXPECT_EQ(policy.refuser("drivers", "native"), (SourceLocation{"/etc/org.d/b0.toml", 3, 1}));
    EXPECT_EQ(policy.refuser("drivers", "microvm"), SourceLocation{});
}

TEST(EffectivePolicy, ARefusalBySeveralBundlesTogetherStillHasAPlace)
{
    // Each permits some of it; only the meet permits none.
    const auto policy = meet({"drivers = [\"oci\"]\n", "drivers = [\"microvm\"]\n"});
    for (const char* driver : {"oci", "microvm", "native"}) {
        EXPECT_FALSE(policy.permits("drivers", driver));
        EXPECT_FALSE(policy.refuser("drivers", driver).file.empty());
    }
}

TEST(EffectivePolicy, TheTightestMaximumAndTheStrictestDemandDecide)
{
    const auto policy = meet({"max.memory = \"2GiB\"\nrequire.log_retention = \"1h\"\n",
                              "max.memory = \"1GiB\"\nrequire.log_retention = \"2h\"\n",
                              "max.memory = \"4GiB\"\nrequire.cgroup_v2 = true\n"});
    EXPECT_EQ(policy.limits().max.memory, Bytes{1ULL << 30});
    EXPECT_EQ(policy.source_of("max.memory").file, "/etc/org.d/b1.toml");
    EXPECT_EQ(policy.limits().require.log_retention, Millis(7'200'000));
    EXPECT_EQ(policy.source_of("require.log_retention").file, "/etc/org.d/b1.toml");
    EXPECT_TRUE(policy.limits().require.cgroup_v2);
    EXPECT_EQ(policy.source_of("require.cgroup_v2").file, "/etc/org.d/b2.toml");
    EXPECT_EQ(policy.source_of("max.pids"), SourceLocation{});
}

TEST(EffectivePolicy, ABrokenBundleDeniesEverything)
{
    const auto policy = EffectivePolicy::meet({}, {{"/etc/org.d/x.toml", "Permission denied"}});
    for (const auto& [key, value] : questions()) EXPECT_FALSE(policy.permits(key, value)) << key;
    EXPECT_EQ(policy.refuser("drivers", "oci").file, "/etc/org.d/x.toml");
    EXPECT_NE(policy.digest(), EffectivePolicy::meet({}).digest());
    EXPECT_NE(render_explain(policy).find("BROKEN /etc/org.d/x.toml: Permission denied"),
              std::string::npos);
}

TEST(EffectivePolicy, TheDigestIsOfTheMeaning)
{
    const std::string one = "drivers = [\"oci\", \"native\"]\nmax.pids = 3\n";
    const std::string same = "# a comment\nmax = { pids = 3 }\ndrivers = [\"native\", \"oci\"]\n";
    EXPECT_TRUE(canon::is_digest(meet({one}).digest()));
    EXPECT_EQ(meet({one}).digest(), meet({same}).digest());
    EXPECT_EQ(meet({one}).digest(), meet({one, one, ""}).digest());
    EXPECT_NE(meet({one}).digest(), meet({"drivers = [\"oci\"]\nmax.pids = 3\n"}).digest());
    EXPECT_NE(meet({""}).digest(), meet({"drivers = []\n"}).digest());
    EXPECT_NE(meet({"max.pids = 3\n"}).digest(), meet({"max.pids = 4\n"}).digest());
    EXPECT_NE(meet({""}).digest(), meet({"require.pinned_digests = true\n"}).digest());
}

TEST(EffectivePolicy, AddingABundleNeverPermitsMoreAndOrderDoesNotMatter)
{
    std::mt19937 random(11);  // fixed: the same cases in every run
    for (int round = 0; round < 150; ++round) {
        std::vector<LocatedBundle> bundles;
        for (int i = 0; i < 3; ++i) {
            bundles.push_back(bundle("b" + std::to_string(i), random_body(random)));
        }
        const auto three = EffectivePolicy::meet(bundles);
        const auto two = EffectivePolicy::meet({bundles[0], bundles[1]});
        for (const auto& [key, value] : questions()) {
            bool all = true;
            for (const LocatedBundle& single : bundles) {
                all = all && EffectivePolicy::meet({single}).permits(key, value);
            }
            ASSERT_EQ(three.permits(key, value), all) << key << " " << value;
            ASSERT_EQ(three.refuser(key, value).file.empty(), all);
            ASSERT_TRUE(two.permits(key, value) || !three.permits(key, value));
        }
        ASSERT_TRUE(at_most(three.limits().max.memory, two.limits().max.memory));
        ASSERT_TRUE(at_most(three.limits().max.pids, two.limits().max.pids));
        ASSERT_TRUE(at_most(three.limits().max.cpus, two.limits().max.cpus));
        ASSERT_TRUE(at_most(three.limits().max.ttl, two.limits().max.ttl));
        std::reverse(bundles.begin(), bundles.end());
        bundles.push_back(bundles.front());
        const auto other = EffectivePolicy::meet(bundles);
        ASSERT_EQ(other.limits(), three.limits());
        ASSERT_EQ(other.digest(), three.digest());
        ASSERT_EQ(other.decisions(), three.decisions());
        ASSERT_EQ(render_explain(EffectivePolicy::meet({bundles.begin(), bundles.end() - 1})),
                  render_explain(three));
    }
}

TEST(EffectivePolicy, ExplainsWhichBundleDecides)
{
    const auto policy = meet(
        {"max.memory = \"2GiB\"\ndrivers = [\"oci\"]\n", "max.memory = \"1GiB\"\n"});
    const std::string text = render_explain(policy);
    EXPECT_NE(text.find("max.memory  1GiB  /etc/org.d/b1.toml:3 (also /etc/org.d/b0.toml:3)"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("drivers     oci   /etc/org.d/b0.toml:4"), std::string::npos) << text;
}

TEST(EffectivePolicy, ExplanationsCannotDriveATerminal)
{
    const auto policy = EffectivePolicy::meet({}, {{"x\x1b[31m.toml", "bad\nline"}});
    const std::string text = render_explain(policy);
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_NE(text.find("bad\\x0aline"), std::string::npos);
}

TEST(EffectivePolicy, HasACanonicalJsonForm)
{
    const auto policy = meet({"drivers = [\"oci\"]\nmax.cpus = 1.5\n"});
    const auto json = to_json(policy);
    EXPECT_TRUE(canon::serialize(json));
    EXPECT_EQ(json.at("limits").at("max").at("cpus"), 1500);
    EXPECT_EQ(json.at("limits").at("users"), nullptr);
    EXPECT_EQ(json.at("decisions").size(), 2U);
    EXPECT_EQ(json.at("digest"), policy.digest());
}

}  // namespace sandbox::policy
