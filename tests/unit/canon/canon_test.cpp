// SPDX-License-Identifier: Apache-2.0
#include "canon/json.hpp"

#include <gtest/gtest.h>

namespace sandbox::canon {

TEST(CanonicalJson, SortsKeysByUtf16CodeUnits)
{
    // U+1F600 is a surrogate pair (D83D …) in UTF-16 and so comes before U+FB33.
    const Json value = {{"\xEF\xAC\xB3", 1}, {"\xF0\x9F\x98\x80", 2}, {"a", 3}};
    EXPECT_EQ(serialize(value).value(), "{\"a\":3,\"\xF0\x9F\x98\x80\":2,\"\xEF\xAC\xB3\":1}");
}

TEST(CanonicalJson, EscapesControlCharactersAsRfc8785Does)
{
    const Json value = std::string("\x01\b\t\n\f\r\"\\/\x7f");
    EXPECT_EQ(serialize(value).value(), "\"\\u0001\\b\\t\\n\\f\\r\\\"\\\\/\x7f\"");
}

TEST(CanonicalJson, RefusesFloatsBigIntegersAndBadUtf8)
{
    EXPECT_FALSE(serialize(Json(1.5)));
    EXPECT_FALSE(serialize(Json(9'007'199'254'740'992)));
    EXPECT_TRUE(serialize(Json(9'007'199'254'740'991)));
    EXPECT_FALSE(serialize(Json("\xff")));
}

TEST(CanonicalJson, RoundTripsItsOwnBytes)
{
    const std::string text = R"({"a":[1,-2,true,null,"x\u0000"],"b":{}})";
    const auto value = parse(text);
    ASSERT_TRUE(value);
    EXPECT_EQ(serialize(*value).value(), text);
}

TEST(StrictParse, NamesWhatItRefuses)
{
    const auto message = [](std::string_view text) { return parse(text).error().message(); };
    EXPECT_EQ(message(R"({"a":1,"a":2})"), "the key 'a' twice");
    EXPECT_EQ(message("[1.5]"), "a number with a fraction or exponent");
    EXPECT_EQ(message("[18446744073709551615]"), "an integer above 2^53-1");
    EXPECT_EQ(message("[1] x").substr(0, 13), "no valid JSON");
    EXPECT_EQ(parse(std::string(100, '[')).error().message(), "nesting too deep");
    EXPECT_EQ(parse("[1,2,3]", {.bytes = 3}).error().code(), Code::corrupt);
}

TEST(Digest, IsSha256WithItsName)
{
    EXPECT_EQ(digest("abc"),
              "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_TRUE(is_digest(digest("")));
    EXPECT_FALSE(is_digest("sha256:BA"));
}

}  // namespace sandbox::canon
