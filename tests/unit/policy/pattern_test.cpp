// SPDX-License-Identifier: Apache-2.0
#include "policy/pattern.hpp"

#include <gtest/gtest.h>

#include <random>

namespace sandbox::policy {

namespace {

using Set = std::set<std::string>;

const std::vector<std::string>& universe(Kind kind)
{
    static const std::vector<std::string> kWords{"a", "b", "c"};
    static const std::vector<std::string> kPaths{"/",      "/srv",     "/srvx",
                                                 "/srv/a", "/srv/a/b", "/home"};
    static const std::vector<std::string> kHosts{"a.com",     "*.a.com", "x.a.com",  "*.x.a.com",
                                                 "y.x.a.com", "ba.com",  "10.0.0.1", "::1"};
    static const std::vector<std::string> kUsers{"*", "1:*", "1:1", "1:2", "11:1", "2:1"};
    switch (kind) {
    case Kind::word: return kWords;
    case Kind::path: return kPaths;
    case Kind::host: return kHosts;
    case Kind::user: return kUsers;
    }
    return kWords;
}

PermittedSet random_set(Kind kind, std::mt19937& random)
{
    if (random() % 6 == 0) return std::nullopt;
    Set set;
    for (const std::string& member : universe(kind)) {
        if (random() % 2 == 0) set.insert(member);
    }
    return set;
}

}  // namespace

TEST(Pattern, WordsCoverThemselvesOnly)
{
    EXPECT_TRUE(covers(Kind::word, "oci", "oci"));
    EXPECT_FALSE(covers(Kind::word, "oci", "oc"));
}

TEST(Pattern, PathsCoverWholeComponents)
{
    EXPECT_TRUE(covers(Kind::path, "/srv", "/srv"));
    EXPECT_TRUE(covers(Kind::path, "/srv", "/srv/x"));
    EXPECT_FALSE(covers(Kind::path, "/srv", "/srvx"));
    EXPECT_FALSE(covers(Kind::path, "/srv/x", "/srv"));
}

TEST(Pattern, AWildcardCoversNamesBelowAndNotTheNameItself)
{
    EXPECT_TRUE(covers(Kind::host, "*.a.com", "x.a.com"));
    EXPECT_TRUE(covers(Kind::host, "*.a.com", "y.x.a.com"));
    EXPECT_TRUE(covers(Kind::host, "*.a.com", "*.a.com"));
    EXPECT_TRUE(covers(Kind::host, "*.a.com", "*.x.a.com"));
    EXPECT_FALSE(covers(Kind::host, "*.a.com", "a.com"));
    EXPECT_FALSE(covers(Kind::host, "*.a.com", "ba.com"));
    EXPECT_FALSE(covers(Kind::host, "*.x.a.com", "*.a.com"));
    EXPECT_FALSE(covers(Kind::host, "x.a.com", "*.x.a.com"));
    EXPECT_FALSE(covers(Kind::host, "a.com", "x.a.com"));
}

TEST(Pattern, AUserWildcardCoversItsGroups)
{
    EXPECT_TRUE(covers(Kind::user, "*", "0:0"));
    EXPECT_TRUE(covers(Kind::user, "1000:*", "1000:5"));
    EXPECT_TRUE(covers(Kind::user, "1000:*", "1000:*"));
    EXPECT_FALSE(covers(Kind::user, "1000:*", "10001:5"));
    EXPECT_FALSE(covers(Kind::user, "1000:*", "*"));
    EXPECT_FALSE(covers(Kind::user, "1:1", "1:11"));
}

TEST(Pattern, AbsentIsNotEmpty)
{
    EXPECT_TRUE(permits(Kind::word, std::nullopt, "x"));
    EXPECT_FALSE(permits(Kind::word, Set{}, "x"));
    EXPECT_EQ(meet(Kind::word, std::nullopt, std::nullopt), std::nullopt);
    EXPECT_EQ(meet(Kind::word, Set{}, std::nullopt), Set{});
    EXPECT_EQ(meet(Kind::word, std::nullopt, Set{"a"}), Set{"a"});
}

TEST(Pattern, TheMeetOfAWildcardAndANameIsTheName)
{
    EXPECT_EQ(meet(Kind::host, Set{"*.a.com"}, Set{"x.a.com"}), Set{"x.a.com"});
    EXPECT_EQ(meet(Kind::host, Set{"*.a.com"}, Set{"*.x.a.com", "a.com"}), Set{"*.x.a.com"});
    EXPECT_EQ(meet(Kind::path, Set{"/srv"}, Set{"/srv/a", "/home"}), Set{"/srv/a"});
    EXPECT_EQ(meet(Kind::user, Set{"*"}, Set{"1:*"}), Set{"1:*"});
    // Members that others cover say nothing and are left out.
    EXPECT_EQ(meet(Kind::path, Set{"/srv", "/srv/a"}, std::nullopt), Set{"/srv"});
}

TEST(Pattern, AMeetPermitsExactlyWhatBothPermit)
{
    std::mt19937 random(7);  // fixed: the same cases in every run
    for (const Kind kind : {Kind::word, Kind::path, Kind::host, Kind::user}) {
        for (int round = 0; round < 500; ++round) {
            const PermittedSet a = random_set(kind, random);
            const PermittedSet b = random_set(kind, random);
            const PermittedSet c = random_set(kind, random);
            const PermittedSet both = meet(kind, a, b);
            for (const std::string& value : universe(kind)) {
                ASSERT_EQ(permits(kind, both, value),
                          permits(kind, a, value) && permits(kind, b, value))
                    << value;
            }
            ASSERT_EQ(both, meet(kind, b, a));
            ASSERT_EQ(meet(kind, both, c), meet(kind, a, meet(kind, b, c)));
            ASSERT_EQ(meet(kind, both, both), both);
            ASSERT_EQ(meet(kind, both, a), both);
        }
    }
}

TEST(Rfc3339, TakesDatesAndMomentsThatExist)
{
    for (const char* text : {"2027-01-31", "2024-02-29", "2000-02-29", "2027-01-31T23:59:60Z",
                             "2027-01-31T00:00:00Z", "2027-01-31T12:00:00.123456Z",
                             "2027-01-31T12:00:00+05:30", "2027-12-31T12:00:00-00:00"}) {
        EXPECT_TRUE(is_rfc3339(text)) << text;
    }
    for (const char* text : {"",
                             "2027",
                             "2027-1-31",
                             "2027-02-29",
                             "1900-02-29",
                             "2027-13-01",
                             "2027-00-01",
                             "2027-01-00",
                             "2027-04-31",
                             "2027-01-31T12:00:00",
                             "2027-01-31 12:00:00Z",
                             "2027-01-31T24:00:00Z",
                             "2027-01-31T12:60:00Z",
                             "2027-01-31T12:00:61Z",
                             "2027-01-31T12:00Z",
                             "2027-01-31T12:00:00.Z",
                             "2027-01-31T12:00:00+5:30",
                             "2027-01-31T12:00:00+05:30x",
                             "2027-01-31Z",
                             "+2027-01-31"}) {
        EXPECT_FALSE(is_rfc3339(text)) << text;
    }
}

}  // namespace sandbox::policy
