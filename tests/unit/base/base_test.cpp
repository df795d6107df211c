// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cerrno>

#include <gtest/gtest.h>

#include "base/diagnostic.hpp"
#include "base/result.hpp"
#include "base/terminal.hpp"
#include "base/units.hpp"
#include "base/utf8.hpp"

namespace sandbox {

TEST(Units, ParsesBinarySizesExactly)
{
    EXPECT_EQ(parse_bytes("512MiB"), Bytes{536'870'912});
    EXPECT_EQ(parse_bytes("0"), Bytes{0});
    EXPECT_EQ(parse_bytes("16777215TiB"), Bytes{16'777'215ULL << 40});
    for (const char* bad : {"", "MiB", "1MB", "1.5GiB", "-1", "+1", " 1", "1 MiB", "01", "1mib",
                            "16777216TiB", "18446744073709551616"}) {
        EXPECT_FALSE(parse_bytes(bad)) << bad;
    }
}

TEST(Units, ParsesDurationsWithUnitsInFallingOrder)
{
    EXPECT_EQ(parse_duration("1h30m"), Millis{5'400'000});
    EXPECT_EQ(parse_duration("250ms"), Millis{250});
    EXPECT_EQ(parse_duration("0"), Millis{0});
    for (const char* bad : {"", "5", "30m1h", "1s1s", "1d", "-1s", "1.5s", "99999999999999h"}) {
        EXPECT_FALSE(parse_duration(bad)) << bad;
    }
}

TEST(Units, FormatsWhatItParses)
{
    for (const std::uint64_t n : {0ULL, 1ULL, 1023ULL, 1024ULL, 1ULL << 40, (1ULL << 40) + 1}) {
        EXPECT_EQ(parse_bytes(format(Bytes{n})), Bytes{n});
    }
    for (const std::int64_t n : {0, 1, 999, 1000, 61'001, 3'600'000}) {
        EXPECT_EQ(parse_duration(format_duration(Millis{n})), Millis{n});
    }
    EXPECT_EQ(format(MilliCpus{1500}), "1.5");
    EXPECT_EQ(format(MilliCpus{2000}), "2");
    EXPECT_EQ(format(MilliCpus{50}), "0.05");
}

TEST(Escaping, LeavesNothingThatDrivesATerminal)
{
    EXPECT_EQ(escaped("a\x1b[31m\n"), "a\\x1b[31m\\x0a");
    EXPECT_EQ(escaped("\xc2\x9b"), "\\x9b");                // C1 CSI
    EXPECT_EQ(escaped("\xe2\x80\xae"), "\\u{202e}");        // right-to-left override
    EXPECT_EQ(escaped("\xff\xc0\xaf"), "\\xff\\xc0\\xaf");  // not UTF-8
    EXPECT_EQ(escaped("gr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
    EXPECT_EQ(escaped(escaped("\x1b\xff")), escaped("\x1b\xff"));
}

TEST(Utf8, RefusesSurrogatesAndOverlongForms)
{
    EXPECT_TRUE(is_valid_utf8("\xf4\x8f\xbf\xbf"));
    for (const char* bad : {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x80"}) {
        EXPECT_FALSE(is_valid_utf8(bad));
    }
}

TEST(Nearest, SuggestsOnlyWhatIsClose)
{
    constexpr std::array<std::string_view, 3> kKeys{"isolation", "process", "mount"};
    EXPECT_EQ(nearest("isolaton", kKeys), "isolation");
    EXPECT_EQ(nearest("proces", kKeys), "process");
    EXPECT_EQ(nearest("x", kKeys), "");
    EXPECT_EQ(nearest("entirely", kKeys), "");
}

TEST(Errors, TellTheWayUp)
{
    const auto inner = []() -> Status {
        errno = ENOENT;
        return fail_errno("open", "/x");
    };
    auto status = inner();
    ASSERT_FALSE(status);
    const Error error = std::move(status.error()).with("read config").with("start web");
    EXPECT_EQ(error.message(), "start web: read config: open /x: No such file or directory");
    EXPECT_EQ(error.code(), Code::not_found);
}

TEST(TerminalSanitiser, GivesTheSameTextForEverySplit)
{
    const std::string text =
        "a\x1b[2J\r\nb\rc\t\xe2\x82\xac\xe2\x80\xae\xff\xf0\x9f\x98\x80\xe2\x82";
    TerminalSanitiser whole;
    std::string expected = whole.feed(text);
    expected += whole.finish();
    EXPECT_EQ(expected, "a\\x1b[2J\nb\\x0dc\t\xe2\x82\xac\\u{202e}\\xff\xf0\x9f\x98\x80\\xe2\\x82");
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        TerminalSanitiser split;
        std::string out = split.feed(std::string_view(text).substr(0, cut));
        out += split.feed(std::string_view(text).substr(cut));
        out += split.finish();
        EXPECT_EQ(out, expected) << "split at " << cut;
    }
}

}  // namespace sandbox
