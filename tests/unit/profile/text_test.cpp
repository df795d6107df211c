// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "profile/check.hpp"
#include "profile/protected.hpp"

namespace sandbox::profile {

namespace {

using namespace std::string_view_literals;

std::string why(const std::optional<Flaw>& flaw) { return flaw ? flaw->message : ""; }

}  // namespace

TEST(Label, AcceptsDnsLabelsAndNothingElse)
{
    for (const std::string_view text : {"a"sv, "0"sv, "web-1"sv, "a--b"sv}) {
        EXPECT_FALSE(flaw_in_label(text)) << text;
    }
    EXPECT_FALSE(flaw_in_label(std::string(63, 'a')));
    for (const std::string_view text : {""sv, "A"sv, "a_b"sv, "a.b"sv, "-a"sv, "a-"sv, "a b"sv,
                                        "a\0"sv, "a\n"sv, "\xff"sv, "é"sv}) {
        EXPECT_TRUE(flaw_in_label(text)) << text;
    }
    EXPECT_TRUE(flaw_in_label(std::string(64, 'a')));
}

TEST(Label, NamesTheLookAlikeCharacterAndItsPlace)
{
    EXPECT_NE(why(flaw_in_label("p\u0430y")).find("U+0430 (Cyrillic, looks like 'a'), character 2"),
              std::string::npos);
    // Characters are counted, not bytes.
    EXPECT_NE(why(flaw_in_label("ab\u2010c")).find("character 3"), std::string::npos);
    EXPECT_NE(why(flaw_in_label("a\u202e")).find("U+202E"), std::string::npos);
    // The message itself must not reorder a terminal line.
    EXPECT_EQ(why(flaw_in_label("a\u202e")).find("\u202e"), std::string::npos);
}

TEST(Path, AcceptsNormalAbsolutePaths)
{
    for (const std::string_view text : {"/"sv, "/a"sv, "/a/b c/…"sv, "/..a/b.."sv, "/.hidden"sv}) {
        EXPECT_FALSE(flaw_in_path(text)) << text;
    }
    EXPECT_FALSE(flaw_in_path("/" + std::string(255, 'a')));
}

TEST(Path, RefusesEverySpellingWithTwoReadings)
{
    for (const std::string_view text :
         {""sv, "a"sv, "./a"sv, "//"sv, "/a/"sv, "//a"sv, "/a//b"sv, "/a/./b"sv, "/."sv, "/.."sv,
          "/a/.."sv, "/../a"sv, "/a\0b"sv, "/a\n"sv, "/\x7f"sv, "/a\xff"sv, "/\xC2\x85"sv}) {
        EXPECT_TRUE(flaw_in_path(text)) << text;
    }
    EXPECT_TRUE(flaw_in_path("/" + std::string(256, 'a')));
    std::string deep;
    while (deep.size() < 4096) deep += "/a";
    EXPECT_TRUE(flaw_in_path(deep));
}

TEST(EnvName, RefusesEqualsSignsAndNul)
{
    for (const std::string_view text : {"A"sv, "_"sv, "npm_config_a-b"sv, "a.b"sv}) {
        EXPECT_FALSE(flaw_in_env_name(text)) << text;
    }
    for (const std::string_view text :
         {""sv, "A=B"sv, "1A"sv, "A B"sv, "A\0"sv, "\u0410"sv, "-A"sv}) {
        EXPECT_TRUE(flaw_in_env_name(text)) << text;
    }
}

TEST(Capability, SuggestsTheNearestName)
{
    EXPECT_FALSE(flaw_in_capability("CAP_NET_RAW"));
    const auto flaw = flaw_in_capability("net_raw");
    ASSERT_TRUE(flaw);
    EXPECT_EQ(flaw->hint, "did you mean \"CAP_NET_RAW\"?");
    EXPECT_EQ(flaw_in_capability("EVERYTHING")->hint, "capabilities(7) lists the names");
}

TEST(NameLists, AreSortedSoThatTheyCanBeReviewed)
{
    const auto capabilities = capability_names();
    EXPECT_TRUE(std::is_sorted(capabilities.begin(), capabilities.end()));
    EXPECT_EQ(capabilities.size(), 41U);  // CAP_LAST_CAP is 40
    const auto limits = rlimit_names();
    EXPECT_TRUE(std::is_sorted(limits.begin(), limits.end()));
    EXPECT_EQ(limits.size(), 16U);  // RLIM_NLIMITS
}

TEST(Cpuset, IsSortedMergedAndWithoutRepeats)
{
    EXPECT_EQ(canonical_cpuset("0"), "0");
    EXPECT_EQ(canonical_cpuset("3,0-1,2,2"), "0-3");
    EXPECT_EQ(canonical_cpuset("8191"), "8191");
    EXPECT_EQ(canonical_cpuset("0-1,4"), "0-1,4");
    EXPECT_EQ(canonical_cpuset("4,0,2"), "0,2,4");
}

TEST(Cpuset, RefusesWhatTheKernelWouldReadOtherwise)
{
    for (const char* text : {"", ",", "0,", ",0", "1-0", "-1", "0-", "a", "0 ", " 0", "0--1",
                             "8192", "0-8192", "99999999999999999999", "0-3:1/2", "+1"}) {
        EXPECT_FALSE(canonical_cpuset(text)) << text;
    }
}

TEST(Cpuset, WithinIsInclusionOfSets)
{
    EXPECT_TRUE(cpuset_within("1", "0-3"));
    EXPECT_TRUE(cpuset_within("0-3", "0-3"));
    EXPECT_FALSE(cpuset_within("3-4", "0-3"));
    EXPECT_FALSE(cpuset_within("0-3", "0-1,3"));
}

TEST(PathPrefix, StopsAtWholeComponents)
{
    EXPECT_TRUE(is_path_prefix("/srv", "/srv"));
    EXPECT_TRUE(is_path_prefix("/srv", "/srv/x"));
    EXPECT_FALSE(is_path_prefix("/srv", "/srvx"));
    EXPECT_FALSE(is_path_prefix("/srv/x", "/srv"));
    EXPECT_TRUE(is_path_prefix("/", "/srv"));
}

TEST(ProtectedSources, HoldsEachPathWhatLiesBelowAndWhatLiesAbove)
{
    for (const std::string_view guarded : protected_sources()) {
        const std::string path(guarded);
        EXPECT_EQ(protected_by(path), path);
        EXPECT_TRUE(protected_by(path + "/x")) << path;
        const std::string parent = path.substr(0, path.rfind('/'));
        EXPECT_TRUE(protected_by(parent.empty() ? "/" : parent)) << path;
        EXPECT_NE(protected_by(path + "x"), path);
    }
}

TEST(ProtectedSources, SeesThroughVarRun)
{
    EXPECT_EQ(protected_by("/var/run/docker.sock"), "/run/docker.sock");
    EXPECT_TRUE(protected_by("/var/run"));
    EXPECT_TRUE(protected_by("/var/run/user/1000/podman/podman.sock"));
}

TEST(ProtectedSources, LeavesOrdinaryFoldersAlone)
{
    for (const std::string_view path : {"/srv"sv, "/home/a"sv, "/tmp"sv, "/opt/x"sv, "/usr"sv,
                                        "/var/tmp"sv, "/var/lib/postgresql"sv, "/run/mine"sv}) {
        EXPECT_FALSE(protected_by(path)) << path;
    }
}

TEST(ProtectedSources, AddsTheOperatorsOwnFolders)
{
    const std::vector<std::string> configured{"/data/sandbox-state", "/var/run/mine"};
    EXPECT_EQ(protected_by("/data/sandbox-state/ledger.db", configured), "/data/sandbox-state");
    EXPECT_TRUE(protected_by("/data", configured));
    EXPECT_TRUE(protected_by("/run/mine/x", configured));
    EXPECT_FALSE(protected_by("/data/other", configured));
}

}  // namespace sandbox::profile
