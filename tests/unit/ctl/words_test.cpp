// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <csignal>

#include "../ledger/support.hpp"
#include "ctl/output.hpp"
#include "ctl/request.hpp"

namespace sandbox::ctl {
namespace {

using ledger::test::TempDir;

TEST(ParseSignal, TakesNamesAndNumbers)
{
    EXPECT_EQ(parse_signal("KILL").value(), SIGKILL);
    EXPECT_EQ(parse_signal("SIGKILL").value(), SIGKILL);
    EXPECT_EQ(parse_signal("sigterm").value(), SIGTERM);
    EXPECT_EQ(parse_signal("usr1").value(), SIGUSR1);
    EXPECT_EQ(parse_signal("9").value(), 9);
    EXPECT_EQ(parse_signal("64").value(), 64);
}

TEST(ParseSignal, RefusesWhatIsNoSignal)
{
    for (const char* text : {"", "0", "65", "-9", "+9", "9x", "KILLED", "SIG", "SIGSIGKILL",
                             " KILL", "SIG9", "99999999999999"}) {
        EXPECT_CODE(parse_signal(text), Code::invalid_argument) << text;
    }
}

TEST(Adjustments, SplitsEnvironmentWordsAtTheFirstEquals)
{
    const auto words = VALUE(adjustments({}, {"/bin/true", "-x"}, {"A=1", "B=x=y", "C="}, ""));
    EXPECT_EQ(words.argv, (std::vector<std::string>{"/bin/true", "-x"}));
    EXPECT_EQ(words.env, (std::map<std::string, std::string>{{"A", "1"}, {"B", "x=y"}, {"C", ""}}));
    EXPECT_FALSE(words.overlay);
}

TEST(Adjustments, LetsTheLastOfARepeatedNameWin)
{
    EXPECT_EQ(VALUE(adjustments({}, {}, {"A=1", "A=2"}, "")).env.at("A"), "2");
}

TEST(Adjustments, RefusesEnvironmentWordsWithoutNameOrValue)
{
    for (const char* word : {"", "A", "=x", "="}) {
        EXPECT_CODE(adjustments({}, {}, {word}, ""), Code::invalid_argument) << word;
    }
}

TEST(Adjustments, ReadsTheOverlayAsAFileAndNeverAsAProfileName)
{
    const TempDir dir;
    ledger::test::write_bytes(dir.file("o.toml"), "[resources]\npids = 8\n");
    const auto words = VALUE(adjustments({}, {}, {}, dir.file("o.toml")));
    ASSERT_TRUE(words.overlay);
    EXPECT_EQ(words.overlay->text, "[resources]\npids = 8\n");
    EXPECT_EQ(words.overlay->file, dir.file("o.toml"));
    supervisor::Paths paths;
    paths.profiles = dir.path();
    EXPECT_CODE(adjustments(paths, {}, {}, "o"), Code::not_found);
    EXPECT_CODE(adjustments(paths, {}, {}, "-"), Code::not_found)
        << "standard input is the profile's";
}

TEST(Table, PadsEachColumnToItsWidestCellButNotTheLast)
{
    EXPECT_EQ(table({{"ID", "NAME", "STATE"}, {"1", "longest-name", "running"}, {"22", "x", "-"}}),
              "ID  NAME          STATE\n"
              "1   longest-name  running\n"
              "22  x             -\n");
}

TEST(Table, EscapesWhatCouldForgeALineOrDriveATerminal)
{
    const std::string text = table({{"NAME", "WHY"}, {"a\nb", "\x1b[2J"}, {"\xff", "ok"}});
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_EQ(text.find('\xff'), std::string::npos);
}

TEST(Table, CountsCharactersNotBytes)
{
    EXPECT_EQ(table({{"gr\xc3\xbc\xc3\x9f", "x"}, {"abcd", "y"}}),
              "gr\xc3\xbc\xc3\x9f  x\nabcd  y\n");
}

TEST(Table, TakesRowsOfDifferentLengthAndNone)
{
    EXPECT_EQ(table({}), "");
    EXPECT_EQ(table({{"a"}, {"bb", "c"}}), "a\nbb  c\n");
}

}  // namespace
}  // namespace sandbox::ctl
