// SPDX-License-Identifier: Apache-2.0
#include "profile/host.hpp"

#include <gtest/gtest.h>

#include "profile/normal.hpp"

namespace sandbox::profile {

namespace {

std::string host(std::string_view text)
{
    const auto result = canonical_host(text);
    return result ? *result : "refused: " + result.error().message();
}

bool refuses(std::string_view text) { return !canonical_host(text); }

}  // namespace

TEST(CanonicalHost, LowersCaseAndKeepsEverythingElse)
{
    EXPECT_EQ(host("API.Example.COM"), "api.example.com");
    EXPECT_EQ(host("*.CDN.example.net"), "*.cdn.example.net");
    EXPECT_EQ(host("localhost"), "localhost");
    EXPECT_EQ(host("xn--bcher-kva.example"), "xn--bcher-kva.example");
    EXPECT_EQ(host("_sip.example.com"), "_sip.example.com");
    EXPECT_EQ(host("1e100.net"), "1e100.net");
}

TEST(CanonicalHost, WritesIpv6AsRfc5952Says)
{
    EXPECT_EQ(host("2001:DB8:0:0:0:0:0:1"), "2001:db8::1");
    EXPECT_EQ(host("2001:db8::0:1"), "2001:db8::1");
    EXPECT_EQ(host("2001:db8:0:1:1:1:1:1"), "2001:db8:0:1:1:1:1:1");  // one group is not shortened
    EXPECT_EQ(host("2001:0:0:1:0:0:0:1"), "2001:0:0:1::1");  // the longest run
    EXPECT_EQ(host("2001:db8:0:0:1:0:0:1"), "2001:db8::1:0:0:1");  // then the first
    EXPECT_EQ(host("::"), "::");
    EXPECT_EQ(host("::1"), "::1");
    EXPECT_EQ(host("1::"), "1::");
    EXPECT_EQ(host("0001:0002:0003:0004:0005:0006:0007:0008"), "1:2:3:4:5:6:7:8");
    EXPECT_EQ(host("64:ff9b::10.0.0.1"), "64:ff9b::a00:1");
}

TEST(CanonicalHost, IsIdempotent)
{
    for (const char* text :
         {"A.b", "*.A.b", "10.0.0.1", "2001:DB8:0:0:0:0:0:1", "::", "1:0:0:2::"}) {
        const auto once = canonical_host(text);
        ASSERT_TRUE(once) << text;
        EXPECT_EQ(host(*once), *once);
    }
}

TEST(CanonicalHost, RefusesIpv4ThatIsNotFourPlainDecimalNumbers)
{
    EXPECT_EQ(host("10.0.0.1"), "10.0.0.1");
    EXPECT_EQ(host("255.255.255.255"), "255.255.255.255");
    for (const char* text : {"010.0.0.1", "0x7f.0.0.1", "127.1", "2130706433", "1.2.3.4.5",
                             "256.0.0.1", "1.2.3.", "0x7f000001", "1.2.3.04", "1.2.3.0x4"}) {
        EXPECT_TRUE(refuses(text)) << text;
    }
}

TEST(CanonicalHost, RefusesIpv6WithTwoReadings)
{
    for (const char* text :
         {"::1::", ":::", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7::8",
          "12345::", "::g", "fe80::1%eth0", "::ffff:10.0.0.1", "::ffff:a00:1",
          "1.2.3.4::", "::1.2.3.04", "[::1]", ":1", "1:"}) {
        EXPECT_TRUE(refuses(text)) << text;
    }
}

TEST(CanonicalHost, RefusesWhatAParserMightReadDifferently)
{
    using namespace std::string_view_literals;
    for (const std::string_view text :
         {""sv,      "*"sv,    "*."sv,   "a.*.b"sv,   "**.a"sv, "*a.b"sv,
          "a.b."sv,  "a..b"sv, ".a"sv,   "-a.b"sv,    "a-.b"sv, "u@h.com"sv,
          "a%2eb"sv, "a b"sv,  "a\tb"sv, "a\0.com"sv, "\x7f"sv, "b\xC3\xBC.de"sv,
          "a/b"sv,   "a:80"sv, "a?b"sv,  "a#b"sv,     "a\\b"sv}) {
        EXPECT_TRUE(refuses(text)) << text;
    }
}

TEST(CanonicalHost, BoundsNamesAndLabelsAsDnsDoes)
{
    const std::string label(63, 'a');
    EXPECT_FALSE(refuses(label + ".com"));
    EXPECT_TRUE(refuses(label + "a.com"));
    const std::string longest = label + "." + label + "." + label + "." + std::string(61, 'b');
    ASSERT_EQ(longest.size(), 253U);
    EXPECT_FALSE(refuses(longest));
    EXPECT_TRUE(refuses(longest + "b"));
    // No name is long enough to have one more label before it.
    EXPECT_TRUE(refuses("*." + longest));
    EXPECT_FALSE(refuses("*." + longest.substr(2)));
}

TEST(ParseDestination, SplitsHostAndPort)
{
    const auto plain = parse_destination("A.example.com:443");
    ASSERT_TRUE(plain);
    EXPECT_EQ(plain->host, "a.example.com");
    EXPECT_EQ(plain->port, 443);
    const auto every = parse_destination("10.0.0.1:*");
    ASSERT_TRUE(every);
    EXPECT_EQ(every->port, std::nullopt);
    const auto v6 = parse_destination("[2001:DB8::1]:53");
    ASSERT_TRUE(v6);
    EXPECT_EQ(v6->host, "2001:db8::1");
    EXPECT_EQ(v6->port, 53);
}

TEST(ParseDestination, RefusesWhatIsNotOneHostAndOnePort)
{
    for (const char* text : {"",     "a",     "a:",    ":1",          "a:0",   "a:65536", "a:080",
                             "a:+1", "a:1 ",  "a:-1",  "::1:80",      "[::1]", "[::1]80", "[a]:80",
                             "[::1", "a:b:1", "a:1:2", "http://a:80", "*:80",  "[]:1"}) {
        EXPECT_FALSE(parse_destination(text)) << text;
    }
    EXPECT_TRUE(parse_destination("a:65535"));
}

TEST(HostPort, RoundTripsBothFamilies)
{
    for (const char* text : {"127.0.0.1:8080", "[::1]:1", "0.0.0.0:65535"}) {
        const auto parsed = parse_host_port(text);
        ASSERT_TRUE(parsed) << text;
        EXPECT_EQ(format_host_port(parsed->address, parsed->port), text);
    }
    EXPECT_FALSE(parse_host_port("localhost:80"));
    EXPECT_FALSE(parse_host_port("127.0.0.1:*"));
}

TEST(ParseUser, TakesNumbersOnly)
{
    EXPECT_EQ(parse_user("1000:100"), (User{1000, 100}));
    EXPECT_EQ(parse_user("33"), (User{33, 33}));
    EXPECT_EQ(parse_user("0:0"), (User{0, 0}));
    EXPECT_EQ(parse_user("4294967294"), (User{4294967294U, 4294967294U}));
    for (const char* text : {"", ":", "1:", ":1", "root", "01", "1:01", " 1", "1 ", "-1", "+1",
                             "1.0", "4294967295", "4294967296", "1:2:3", "0x1"}) {
        EXPECT_FALSE(parse_user(text)) << text;
    }
    EXPECT_EQ(parse_user(format_user({7, 8})), (User{7, 8}));
}

TEST(ParseMode, TakesUpToFourOctalDigits)
{
    EXPECT_EQ(parse_mode("22", 0777), 022U);
    EXPECT_EQ(parse_mode("1777", 01777), 01777U);
    EXPECT_EQ(format_mode(022), "0022");
    for (const char* text : {"", "8", "00022", "0o22", "-1", "2777"}) {
        EXPECT_FALSE(parse_mode(text, 01777)) << text;
    }
}

}  // namespace sandbox::profile
