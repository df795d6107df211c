// SPDX-License-Identifier: Apache-2.0
#include "control/http.hpp"

#include <gtest/gtest.h>

namespace sandbox::control {
namespace {

// Feeds a text in pieces of `step` bytes; the fault or nothing.
std::optional<HttpFault> feed(RequestReader& reader, std::string text, std::size_t step)
{
    std::string held;
    std::size_t given = 0;
    while (reader.stage() != RequestReader::Stage::done) {
        const auto taken = reader.feed(held);
        if (!taken) return taken.error();
        held.erase(0, *taken);
        if (*taken > 0) continue;
        if (given == text.size()) return std::nullopt;
        held += text.substr(given, step);
        given = std::min(text.size(), given + step);
    }
    return std::nullopt;
}

constexpr const char* kPost =
    "POST /v1/sandboxes?x=1 HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\n"
    "Connection: Upgrade\r\nUpgrade: Sandbox-Stream\r\nContent-Length: 4\r\n\r\nbody";

TEST(HttpRequest, ReadsTheSameHoweverItIsCut)
{
    for (const std::size_t step : {1U, 2U, 7U, 1000U}) {
        RequestReader reader;
        ASSERT_FALSE(feed(reader, kPost, step).has_value()) << step;
        ASSERT_EQ(reader.stage(), RequestReader::Stage::done) << step;
        const HttpRequest request = reader.take();
        EXPECT_EQ(request.method, "POST");
        EXPECT_EQ(request.path, "/v1/sandboxes");
        EXPECT_EQ(request.query, "x=1");
        EXPECT_EQ(request.operation, "k");
        EXPECT_TRUE(request.upgrade);
        EXPECT_EQ(request.body, "body");
    }
}

TEST(HttpRequest, LeavesWhatStandsBehindIt)
{
    RequestReader reader;
    const std::string text = std::string(kPost) + "GET / HTTP/1.1\r\n\r\n";
    std::size_t taken = 0;
    while (reader.stage() != RequestReader::Stage::done) {
        taken += reader.feed(std::string_view(text).substr(taken)).value();
    }
    EXPECT_EQ(text.substr(taken), "GET / HTTP/1.1\r\n\r\n");
}

TEST(HttpRequest, StopsBehindItsHeaderSoThatTheBodyCanBeLimited)
{
    RequestReader reader;
    const std::string text = kPost;
    std::size_t taken = 0;
    while (reader.stage() == RequestReader::Stage::header) {
        taken += reader.feed(std::string_view(text).substr(taken)).value();
    }
    reader.limit_body(3);
    const auto fault = reader.feed(std::string_view(text).substr(taken));
    ASSERT_FALSE(fault.has_value());
    EXPECT_EQ(fault.error().status, 413);
}

struct Bad {
    const char* text;
    int status;
};

class HttpRefused : public ::testing::TestWithParam<Bad> {};

TEST_P(HttpRefused, WithItsStatus)
{
    RequestReader reader;
    const auto fault = feed(reader, GetParam().text, 64);
    ASSERT_TRUE(fault.has_value());
    EXPECT_EQ(fault->status, GetParam().status);
    EXPECT_FALSE(fault->message.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Requests, HttpRefused,
    ::testing::Values(Bad{"nonsense\r\n\r\n", 400}, Bad{"GET / HTTP/2.0\r\n\r\n", 505},
                      Bad{"GET / HTTP/1.1\r\nA b: c\r\n\r\n", 400},
                      Bad{"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400},
                      Bad{"POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n", 400},
                      Bad{"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413},
                      Bad{"\r\n\r\n\r\n", 400}));

TEST(HttpRequest, RefusesAHeaderThatIsTooLong)
{
    for (const std::size_t step : {100U, 5000U}) {
        RequestReader reader;
        const auto fault = feed(
            reader, "GET / HTTP/1.1\r\nX: " + std::string(kMostHeaderBytes + 10, 'a') + "\r\n\r\n",
            step);
        ASSERT_TRUE(fault.has_value());
        EXPECT_EQ(fault->status, 431);
    }
}

TEST(HttpResponse, WhatIsRenderedIsRead)
{
    std::string body;
    ResponseReader reader([&](std::string_view piece) -> Status {
        body += piece;
        return {};
    });
    const std::string text = render_response(404, "text/plain", "gone", Persistence::close, {});
    EXPECT_EQ(reader.feed(text).value(), text.size());
    EXPECT_TRUE(reader.done());
    EXPECT_EQ(reader.status(), 404);
    EXPECT_FALSE(reader.keep_alive());
    EXPECT_EQ(body, "gone");
}

TEST(HttpResponse, ChunksAreHandedOnAsTheyCome)
{
    std::vector<std::string> pieces;
    ResponseReader reader([&](std::string_view piece) -> Status {
        pieces.emplace_back(piece);
        return {};
    });
    std::string held = render_chunked_header(200, "application/x-ndjson");
    held.erase(0, reader.feed(held).value());
    EXPECT_EQ(reader.status(), 200);
    for (const char* line : {"one\n", "two\n"}) {
        held += render_chunk(line);
        held.erase(0, reader.feed(held).value());
        ASSERT_FALSE(pieces.empty());
        EXPECT_EQ(pieces.back(), line);
    }
    EXPECT_FALSE(reader.done());
    held += last_chunk();
    held.erase(0, reader.feed(held).value());
    EXPECT_TRUE(reader.done());
}

TEST(HttpResponse, BytesBehindASwitchAreLeft)
{
    ResponseReader reader([](std::string_view) -> Status { return {}; });
    const std::string text = render_switching() + "frames";
    const std::size_t taken = reader.feed(text).value();
    EXPECT_EQ(reader.status(), 101);
    EXPECT_TRUE(reader.done());
    EXPECT_EQ(text.substr(taken), "frames");
}

TEST(HttpResponse, AFailingReceiverEndsTheReading)
{
    ResponseReader reader([](std::string_view) { return Status(fail(Code::conflict, "enough")); });
    EXPECT_FALSE(
        reader.feed(render_response(200, "a/b", "x", Persistence::keep_alive)).has_value());
}

TEST(HttpQuery, RoundTripsThroughPercentSigns)
{
    const std::string odd = "a b/%&=\xc3\xa4\n";
    EXPECT_EQ(percent_decode(percent_encode(odd)), odd);
    EXPECT_EQ(percent_encode("a-Z_0.~"), "a-Z_0.~");
    for (const char* broken : {"%", "%1", "%zz", "%00"}) {
        EXPECT_FALSE(percent_decode(broken).has_value()) << broken;
    }
    const auto query = parse_query("all=1&name=" + percent_encode(odd) + "&follow");
    ASSERT_TRUE(query.has_value());
    EXPECT_EQ(query->at("name"), odd);
    EXPECT_EQ(query->at("follow"), "1");
    EXPECT_FALSE(parse_query("a=1&a=2").has_value());
}

}  // namespace
}  // namespace sandbox::control
