// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "profile/check.hpp"
#include "profile/document.hpp"
#include "profile/profile.hpp"
#include "sample.hpp"

namespace sandbox::profile {

namespace {

ParsedProfile parse(const std::string& more)
{
    return parse_profile(std::string(kMinimal) + more, "p.toml");
}

const Diagnostic* find(const ParsedProfile& parsed, std::string_view key)
{
    for (const Diagnostic& diagnostic : parsed.diagnostics) {
        if (diagnostic.key == key) return &diagnostic;
    }
    return nullptr;
}

}  // namespace

TEST(ParseProfile, FillsDefaultsThatGrantLess)
{
    const auto parsed = parse_profile("version = 1\nname = \"a\"\n[process]\nargv = [\"x\"]\n",
                                      "f");
    ASSERT_TRUE(parsed.profile);
    const Profile& profile = parsed.profile->profile;
    EXPECT_EQ(profile.isolation, Isolation::microvm);
    EXPECT_FALSE(profile.driver);
    EXPECT_EQ(profile.process.user, (User{1000, 1000}));
    EXPECT_EQ(profile.process.umask, 0022U);
    EXPECT_EQ(profile.process.cwd.str(), "/");
    EXPECT_TRUE(std::holds_alternative<HostRootfs>(profile.rootfs.source));
    EXPECT_TRUE(profile.rootfs.read_only);
    EXPECT_EQ(profile.network.mode, NetworkMode::none);
    EXPECT_EQ(profile.resources.pids, 512U);
    EXPECT_TRUE(profile.security.capabilities.empty());
    EXPECT_EQ(profile.lifecycle.restart, RestartPolicy::no);
    EXPECT_FALSE(profile.lifecycle.autostart);
}

TEST(ParseProfile, MountsAreReadOnlyUnlessSaidAndTmpfsIsWritable)
{
    const auto parsed = parse("[[mount]]\ntype = \"bind\"\nsource = \"/srv/a\"\ntarget = \"/a\"\n"
                              "[[mount]]\ntype = \"tmpfs\"\ntarget = \"/b\"\n");
    ASSERT_TRUE(parsed.profile);
    EXPECT_TRUE(parsed.profile->profile.mounts[0].read_only);
    EXPECT_FALSE(parsed.profile->profile.mounts[1].read_only);
}

TEST(ParseProfile, ReadsEveryKey)
{
    const auto parsed = parse_profile(kEveryKey, "full.toml");
    ASSERT_TRUE(parsed.profile) << format(parsed.diagnostics.front());
    const Profile& profile = parsed.profile->profile;
    EXPECT_EQ(profile.driver, Driver::oci);
    EXPECT_EQ(profile.process.timeout, Millis(30'000));
    EXPECT_EQ(profile.process.rlimits.at("nofile"), 1024U);
    EXPECT_EQ(std::get<DirRootfs>(profile.rootfs.source).path.str(), "/srv/root");
    EXPECT_EQ(profile.mounts[1].mode, 01777U);
    EXPECT_EQ(profile.mounts[1].size, Bytes{64ULL << 20});
    EXPECT_EQ(profile.resources.cpus, MilliCpus{1500});
    EXPECT_EQ(profile.resources.cpuset, "0-1,4");
    EXPECT_EQ(profile.security.capabilities.front(), "CAP_CHOWN");
    EXPECT_EQ(profile.lifecycle.health->retries, 4U);
    EXPECT_EQ(profile.network.publish[0].guest_port, 80);
    EXPECT_EQ(profile.secrets[0].name, "KEY");
    EXPECT_EQ(profile.microvm.cpus, 2U);
}

TEST(ParseProfile, ADeniedHostIsDeniedOverBothProtocols)
{
    const auto parsed = parse("[network]\nmode = \"egress\"\ndeny = [\"a.example.com:*\"]\n");
    ASSERT_TRUE(parsed.profile);
    const auto& rules = parsed.profile->profile.network.rules;
    ASSERT_EQ(rules.size(), 2U);
    EXPECT_EQ(rules[0].protocol, Protocol::tcp);
    EXPECT_EQ(rules[1].protocol, Protocol::udp);
    EXPECT_EQ(rules[1].action, RuleAction::deny);
}

TEST(ParseProfile, RemembersWhereEachKeyWasWritten)
{
    const auto parsed = parse_profile(kEveryKey, "full.toml");
    ASSERT_TRUE(parsed.profile);
    const Locations& where = parsed.profile->where;
    EXPECT_EQ(where.at("name"), (SourceLocation{"full.toml", 2, 1}));
    EXPECT_EQ(where.at("process.env.LANG"), (SourceLocation{"full.toml", 8, 9}));
    EXPECT_EQ(where.at("mount[1].size").line, 26U);
    EXPECT_EQ(where.at("process.argv[2]"), (SourceLocation{"full.toml", 7, 35}));
    // Rules count through allow, deny (twice: both protocols) and the long form.
    EXPECT_EQ(where.at("network.rule[1]").line, 36U);
    EXPECT_EQ(where.at("network.rule[4]").line, 41U);
}

TEST(ParseProfile, LocatesAKeyByItsNearestWrittenAncestor)
{
    const Locations where{{"", {"f", 1, 1}}, {"mount", {"f", 5, 1}}, {"mount[0]", {"f", 6, 1}}};
    EXPECT_EQ(locate(where, "mount[0].source").line, 6U);
    EXPECT_EQ(locate(where, "mount[1].source").line, 5U);
    EXPECT_EQ(locate(where, "network.mode").line, 1U);
    EXPECT_EQ(locate({}, "x"), SourceLocation{});
}

TEST(ParseProfile, SuggestsTheNearestKeyWithItsPlace)
{
    const auto parsed = parse_profile(
        "version = 1\nname = \"a\"\nisolaton = \"sandbox\"\n[process]\nargv = [\"x\"]\n", "t.toml");
    ASSERT_EQ(parsed.diagnostics.size(), 1U);
    EXPECT_EQ(format(parsed.diagnostics[0]),
              "t.toml:3:1: isolaton: unknown key (did you mean 'isolation'?)");
    EXPECT_FALSE(parsed.profile);
}

TEST(ParseProfile, ReportsAllMistakesAtOnceInTheOrderOfTheFile)
{
    const auto parsed = parse(
        "user = \"root\"\nbogus = 1\n[resources]\nmemory = \"1MB\"\npids = 0\n");
    EXPECT_EQ(parsed.diagnostics.size(), 4U);
    EXPECT_TRUE(std::is_sorted(parsed.diagnostics.begin(), parsed.diagnostics.end(),
                               [](const auto& a, const auto& b) { return a.at < b.at; }));
    for (const Diagnostic& diagnostic : parsed.diagnostics) {
        EXPECT_EQ(diagnostic.at.file, "p.toml");
        EXPECT_GT(diagnostic.at.line, 5U);
    }
}

TEST(ParseProfile, ComplainsAboutOneKeyOnce)
{
    const auto parsed = parse_profile(kEveryKey.substr(0, 12), "f");  // version only
    std::vector<std::string> keys;
    for (const Diagnostic& diagnostic : parsed.diagnostics) keys.push_back(diagnostic.key);
    std::sort(keys.begin(), keys.end());
    EXPECT_EQ(std::adjacent_find(keys.begin(), keys.end()), keys.end());
    EXPECT_EQ(keys, (std::vector<std::string>{"name", "process.argv"}));
}

TEST(ParseProfile, RefusesALargeFileBeforeReadingIt)
{
    const std::string large = "# " + std::string(kMostProfileBytes, 'x');
    const auto parsed = parse_profile(large, "big.toml");
    ASSERT_EQ(parsed.diagnostics.size(), 1U);
    EXPECT_EQ(parsed.diagnostics[0].code, "file-too-large");
}

TEST(ParseProfile, CountsColumnsInCharacters)
{
    const auto parsed = parse_profile("# \xC3\xBC\xC3\xBC\xff\n", "f");
    ASSERT_EQ(parsed.diagnostics.size(), 1U);
    EXPECT_EQ(parsed.diagnostics[0].code, "invalid-utf8");
    EXPECT_EQ(parsed.diagnostics[0].at, (SourceLocation{"f", 1, 5}));
}

TEST(ParseProfile, SurvivesDeepNestingAndEveryTruncation)
{
    EXPECT_FALSE(parse_profile("a = " + std::string(5000, '['), "f").profile);
    EXPECT_FALSE(parse_profile(std::string(2000, 'a') + ".a", "f").profile);
    for (std::size_t length = 0; length < kEveryKey.size(); length += 7) {
        const auto parsed = parse_profile(kEveryKey.substr(0, length), "f");
        EXPECT_EQ(parsed.profile.has_value(), parsed.diagnostics.empty()) << length;
    }
}

TEST(ParseProfile, RefusesAKeyOfThousandsOfPartsBeforeTheParserDescends)
{
    std::string deep = "a";
    for (int i = 0; i < 60'000; ++i) deep += ".a";
    for (const std::string& text : {"[" + deep + "]\n", deep + " = 1\n", "b = {" + deep + " = 1}\n",
                                    "[\"a\"." + deep + "]\n"}) {
        const auto parsed = parse(text);
        ASSERT_FALSE(parsed.diagnostics.empty());
        EXPECT_EQ(parsed.diagnostics.front().code, "key-too-deep");
    }
    // Dots in strings and comments are no key's.
    const std::string dots(100, '.');
    for (const std::string& text : {"env = { A = \"" + dots + "\" }\n", "# " + dots + "\n",
                                    "env = { A = \"\\\"" + dots + "\" }\n"}) {
        EXPECT_TRUE(parse(text).diagnostics.empty()) << text;
    }
}

TEST(ParseProfile, NeverAcceptsAFlippedByteSilentlyAsAnotherVersionOrName)
{
    for (std::size_t at = 0; at < kEveryKey.size(); ++at) {
        std::string text(kEveryKey);
        text[at] = static_cast<char>(text[at] ^ 0x40);
        const auto parsed = parse_profile(text, "f");
        EXPECT_EQ(parsed.profile.has_value(), parsed.diagnostics.empty()) << at;
        // What is accepted is valid by the same gate that a plan's request passes.
        if (parsed.profile) {
            EXPECT_TRUE(check(parsed.profile->profile, {}).empty()) << at;
        }
    }
}

TEST(ParseProfile, BoundsArgumentsOneByOneAndTogether)
{
    const std::string fits(kMostItemBytes - 1, 'x');
    EXPECT_TRUE(parse("[[mask]]\npath = \"/a\"\n").profile);
    const std::string head = "version = 1\nname = \"a\"\n[process]\nargv = [\"/bin/sh\", \"";
    EXPECT_TRUE(parse_profile(head + fits + "\"]\n", "f").profile);
    const auto longer = parse_profile(head + fits + "x\"]\n", "f");
    ASSERT_TRUE(find(longer, "process.argv[1]"));
    // More than a file may hold can still come with a plan: the typed check bounds the sum.
    Profile profile = parse("").profile->profile;
    profile.process.argv.assign(9, fits);
    const auto flaws = check(profile, {});
    ASSERT_EQ(flaws.size(), 1U);
    EXPECT_EQ(flaws[0].key, "process.argv");
    profile.process.argv.assign(4097, "x");
    EXPECT_EQ(check(profile, {}).front().code, "too-many");
}

TEST(ParseProfile, EndsSoonForAFileFullOfMistakes)
{
    // Untrusted files come through here: the work must not grow with the square of the mistakes.
    std::string list = "[network]\nmode = \"egress\"\nallow = [";
    for (int i = 0; i < 40'000; ++i) list += "\"*\",";
    const auto hosts = parse(list + "]\n");
    EXPECT_FALSE(hosts.profile);
    EXPECT_LE(hosts.diagnostics.size(), kMostDiagnostics);
    std::string keys;
    for (int i = 0; i < 20'000; ++i) keys += "k" + std::to_string(i) + "=1\n";
    const auto unknown = parse(keys);
    EXPECT_FALSE(unknown.profile);
    EXPECT_EQ(unknown.diagnostics.size(), kMostDiagnostics);
}

TEST(ParseProfile, TakesCpusToTheThousandthAndNoFiner)
{
    const auto cpus = [](const std::string& text) {
        const auto parsed = parse("[resources]\ncpus = " + text + "\n");
        return parsed.profile ? parsed.profile->profile.resources.cpus : std::nullopt;
    };
    EXPECT_EQ(cpus("1"), MilliCpus{1000});
    EXPECT_EQ(cpus("1.5"), MilliCpus{1500});
    EXPECT_EQ(cpus("0.001"), MilliCpus{1});
    EXPECT_EQ(cpus("1.001"), MilliCpus{1001});
    EXPECT_EQ(cpus("8192"), MilliCpus{8'192'000});
    for (const char* text : {"0", "0.0005", "1.0001", "8192.001", "-1", "inf", "nan", "1e9"}) {
        EXPECT_EQ(cpus(text), std::nullopt) << text;
    }
    for (std::uint32_t milli = 1; milli < 20'000; milli += 7) {
        EXPECT_EQ(cpus(format(MilliCpus{milli})), MilliCpus{milli});
    }
}

TEST(ParseProfile, QuotesKeysThatAreNotBare)
{
    EXPECT_EQ(member_path("process.env", "A"), "process.env.A");
    EXPECT_EQ(member_path("process.env", "A.B"), "process.env.\"A.B\"");
    EXPECT_EQ(member_path("", "a b"), "\"a b\"");
    EXPECT_EQ(item_path("mount", 3), "mount[3]");
    const auto parsed = parse("env = { \"A=B\" = \"x\" }\n");
    EXPECT_TRUE(find(parsed, "process.env.\"A=B\""));
}

TEST(ParseProfile, NamesTheTableOfADuplicateKey)
{
    const auto parsed = parse("cwd = \"/a\"\ncwd = \"/b\"\n");
    ASSERT_EQ(parsed.diagnostics.size(), 1U);
    EXPECT_EQ(parsed.diagnostics[0].code, "duplicate-key");
    EXPECT_EQ(parsed.diagnostics[0].key, "process.cwd");
    EXPECT_EQ(parsed.diagnostics[0].at.line, 7U);
}

TEST(ParseProfile, SurvivesATableHeaderThatTheParserGivesUpOn)
{
    const auto parsed = parse_profile("version = 1\n[:\n", "f");
    ASSERT_EQ(parsed.diagnostics.size(), 1U);
    EXPECT_EQ(parsed.diagnostics[0].code, "syntax");
    EXPECT_EQ(parsed.diagnostics[0].at.line, 2U);
}

TEST(ParseProfile, RefusesAWritableBindForUserZeroWhateverTheGroup)
{
    const std::string bind =
        "[[mount]]\ntype = \"bind\"\nsource = \"/srv/a\"\ntarget = \"/a\"\nread_only = ";
    EXPECT_FALSE(parse("user = \"0:0\"\n" + bind + "false\n").profile);
    EXPECT_FALSE(parse("user = \"0:1000\"\n" + bind + "false\n").profile);
    EXPECT_TRUE(parse("user = \"0:0\"\n" + bind + "true\n").profile);
    EXPECT_TRUE(parse("user = \"1000:1000\"\n" + bind + "false\n").profile);
}

}  // namespace sandbox::profile
