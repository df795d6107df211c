// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "daemon/instance.hpp"
#include "daemon/options.hpp"
#include "daemon/tender.hpp"

namespace sandbox::daemon {
namespace {

std::variant<Options, Answer> parse(std::vector<const char*> words)
{
    words.insert(words.begin(), "sandboxd");
    return parse_options(static_cast<int>(words.size()), words.data());
}

TEST(DaemonOptions, AreReadInBothForms)
{
    for (const auto& words :
         {std::vector<const char*>{"--root", "/r", "--reconcile-interval", "5s"},
          std::vector<const char*>{"--root=/r", "--reconcile-interval=5s"}}) {
        const auto parsed = parse(words);
        ASSERT_TRUE(std::holds_alternative<Options>(parsed));
        EXPECT_EQ(std::get<Options>(parsed).root, "/r");
        EXPECT_EQ(std::get<Options>(parsed).reconcile_interval, Millis(5000));
    }
}

TEST(DaemonOptions, WrongUsageIsSaidAndExitsTwo)
{
    for (const auto& words :
         {std::vector<const char*>{"--nonsense"}, std::vector<const char*>{"word"},
          std::vector<const char*>{"--root"}, std::vector<const char*>{"--routes=1"},
          std::vector<const char*>{"--reconcile-interval", "soon"},
          std::vector<const char*>{"--reconcile-interval", "10ms"}}) {
        const auto parsed = parse(words);
        ASSERT_TRUE(std::holds_alternative<Answer>(parsed)) << words[0];
        EXPECT_EQ(std::get<Answer>(parsed).status, 2);
    }
    EXPECT_EQ(std::get<Answer>(parse({"--help"})).status, 0);
    EXPECT_EQ(std::get<Answer>(parse({"--version"})).status, 0);
}

TEST(DaemonGroup, IsReadFromTheFile)
{
    constexpr std::string_view kFile = "root:x:0:\nsandbox-x:x:5:\nsandbox:x:42:a,b\nbad\n";
    EXPECT_EQ(find_group(kFile, "sandbox"), 42U);
    EXPECT_EQ(find_group(kFile, "root"), 0U);
    EXPECT_FALSE(find_group(kFile, "bad").has_value());
    EXPECT_FALSE(find_group("sandbox:x:4x:\n", "sandbox").has_value());
    EXPECT_FALSE(find_group("sandbox:x", "sandbox").has_value());
}

TEST(DaemonTending, WhatIsToldRoundTrips)
{
    const Tended tended{Tended::What::converge, 12, 3, 4, "failure", {"a", "b"}};
    EXPECT_EQ(decode_tended(encode(tended)).value(), tended);
    EXPECT_FALSE(decode_tended("{}x").has_value());
}

}  // namespace
}  // namespace sandbox::daemon
