// SPDX-License-Identifier: Apache-2.0
#include "control/calls.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <set>

namespace sandbox::control {
namespace {

HttpRequest request(std::string method, std::string path, std::string body = {})
{
    HttpRequest r;
    r.method = std::move(method);
    const auto question = path.find('?');
    r.path = path.substr(0, question);
    if (question != std::string::npos) r.query = path.substr(question + 1);
    r.body = std::move(body);
    return r;
}

std::expected<Call, CallFault> decode(const HttpRequest& r)
{
    const auto route = find_route(r);
    if (!route) return std::unexpected(route.error());
    return decode_call(**route, r);
}

int status_of_request(const HttpRequest& r)
{
    const auto call = decode(r);
    return call ? 200 : call.error().status;
}

constexpr const char* kProfile = R"({"profile":{"file":"f","text":"t"}})";

TEST(Routes, EachOneIsFoundByItsOwnPath)
{
    std::set<std::pair<std::string, std::string>> seen;
    for (const Route& route : routes()) {
        EXPECT_TRUE(seen.emplace(route.method, route.pattern).second) << route.pattern;
        std::string path(route.pattern);
        for (const char* word : {"{ref}", "{session}"}) {
            if (const auto at = path.find(word); at != std::string::npos) {
                path.replace(at, std::string(word).size(), "abc");
            }
        }
        const auto found = find_route(request(std::string(route.method), path));
        ASSERT_TRUE(found.has_value()) << path;
        EXPECT_EQ((*found)->operation, route.operation) << path;
        EXPECT_FALSE(to_string(route.operation).empty());
    }
}

TEST(Routes, OthersAreNotFoundOrNotAllowed)
{
    EXPECT_EQ(status_of_request(request("GET", "/")), 404);
    EXPECT_EQ(status_of_request(request("GET", "/v1/sandboxes/a/b/c/d/e")), 404);
    EXPECT_EQ(status_of_request(request("PATCH", "/v1/version")), 405);
    EXPECT_EQ(status_of_request(request("get", "/v1/version")), 405);
}

TEST(Calls, TakeTheirWordsFromPathAndQuery)
{
    auto call = decode(request("DELETE", "/v1/sandboxes/we%2Fb?force=1"));
    ASSERT_TRUE(call.has_value());
    EXPECT_EQ(call->reference, "we/b");
    EXPECT_EQ(call->force, supervisor::SandboxService::Force::yes);
    call = decode(request("POST", "/v1/sandboxes/w/sessions/s2/signal?signal=SIGHUP"));
    ASSERT_TRUE(call.has_value());
    EXPECT_EQ(call->session, "s2");
    EXPECT_EQ(call->signal, SIGHUP);
    call = decode(request("POST", "/v1/sandboxes/w/stop?timeout=1m30s"));
    ASSERT_TRUE(call.has_value());
    EXPECT_EQ(call->timeout, Millis(90'000));
    call = decode(request("GET", "/v1/events?after=7&follow=1&ref=x"));
    ASSERT_TRUE(call.has_value());
    EXPECT_EQ(call->after, 7U);
    EXPECT_TRUE(call->follow);
    EXPECT_EQ(call->reference, "x");
}

TEST(Calls, RefuseWhatTheyDoNotKnow)
{
    for (const char* path :
         {"/v1/sandboxes?nonsense=1", "/v1/sandboxes?all=maybe", "/v1/sandboxes?all=1&all=0",
          "/v1/sandboxes/%zz", "/v1/events?after=-1", "/v1/events?after=1x"}) {
        EXPECT_EQ(status_of_request(request("GET", path)), 400) << path;
    }
    for (const char* body :
         {"", "[]", "{", "null", "{}", R"({"profile":"a/b"})", R"({"profile":"x.toml"})",
          R"({"profile":1})", R"({"profile":{"file":"f"}})", R"({"profile":"a","plan":{}})",
          R"({"profile":"a","argv":"x"})", R"({"profile":"a","argv":[1]})",
          R"({"profile":"a","narrower":true})", R"({"profile":"a","env":{"A":1}})",
          R"({"plan":{},"argv":["x"]})", R"({"profile":"a","profile":"b"})",
          R"({"profile":{"file":"f","text":"t","more":1}})"}) {
        EXPECT_EQ(status_of_request(request("POST", "/v1/plan", body)), 400) << body;
    }
    EXPECT_EQ(status_of_request(request("POST", "/v1/reconcile", "{}")), 400);
    EXPECT_EQ(status_of_request(request("POST", "/v1/sandboxes/x/stop?timeout=soon")), 400);
}

TEST(Calls, ARunCarriesWhatItsBodySays)
{
    const auto call = decode(
        request("POST", "/v1/sandboxes",
                R"({"profile":{"file":"f","text":"t"},"argv":["a","b"],"env":{"X":"1"},"name":"n",)"
                R"("remove_on_exit":true,"terminal":true,"overlay":{"file":"o","text":"p"}})"));
    ASSERT_TRUE(call.has_value());
    EXPECT_EQ(call->plan.profile->text, "t");
    EXPECT_EQ(call->plan.adjustments.argv, (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(call->plan.adjustments.env.at("X"), "1");
    EXPECT_EQ(call->plan.adjustments.overlay->file, "o");
    EXPECT_EQ(call->plan.adjustments.terminal, true);
    EXPECT_EQ(call->name, "n");
    EXPECT_EQ(call->keep, supervisor::Keep::remove_on_exit);
    EXPECT_EQ(call->duration, Duration::quick);
}

TEST(Calls, StreamsAreAskedForWhereThereAreSome)
{
    EXPECT_EQ(status_of_request(request("POST", "/v1/sandboxes/x/attach", "{}")), 426);
    EXPECT_EQ(status_of_request(request("POST", "/v1/sandboxes/x/exec", R"({"argv":["a"]})")), 426);
    EXPECT_EQ(status_of_request(
                  request("POST", "/v1/sandboxes/x/exec", R"({"argv":["a"],"detach":true})")),
              200);
    HttpRequest stream = request("POST", "/v1/sandboxes", kProfile);
    stream.upgrade = true;
    const auto call = decode(stream);
    ASSERT_TRUE(call.has_value());
    EXPECT_TRUE(call->upgraded);
    EXPECT_EQ(call->duration, Duration::long_lasting);
    stream.operation = "k";
    EXPECT_EQ(status_of_request(stream), 400);
    stream = request("GET", "/v1/sandboxes");
    stream.upgrade = true;
    EXPECT_EQ(status_of_request(stream), 400);
    const auto with_input = std::string(kProfile).substr(0, std::string(kProfile).size() - 1);
    EXPECT_EQ(status_of_request(request("POST", "/v1/sandboxes", with_input + R"(,"stdin":true})")),
              400);
}

TEST(Calls, OperationIdsAreBoundToTheirRequest)
{
    HttpRequest first = request("POST", "/v1/sandboxes", kProfile);
    first.operation = "k";
    HttpRequest other = first;
    other.body = R"({"profile":"x"})";
    const auto a = decode(first);
    const auto b = decode(other);
    ASSERT_TRUE(a.has_value() && b.has_value());
    EXPECT_EQ(a->operation_id, "k");
    EXPECT_EQ(a->request_digest, decode(first)->request_digest);
    EXPECT_NE(a->request_digest, b->request_digest);
    first.operation = "two words";
    EXPECT_EQ(status_of_request(first), 400);
    first.operation = std::string(129, 'k');
    EXPECT_EQ(status_of_request(first), 400);
}

TEST(Calls, SignalsHaveNamesAndNumbers)
{
    EXPECT_EQ(parse_signal("TERM"), SIGTERM);
    EXPECT_EQ(parse_signal("SIGKILL"), SIGKILL);
    EXPECT_EQ(parse_signal("10"), 10);
    for (const char* wrong : {"", "0", "-1", "99999999999999999999", "NOSUCH", "SIG", "1x"}) {
        EXPECT_FALSE(parse_signal(wrong).has_value()) << wrong;
    }
}

TEST(Calls, EveryFailureHasAStatus)
{
    for (const Code code :
         {Code::invalid_argument, Code::not_found, Code::already_exists, Code::permission_denied,
          Code::unavailable, Code::resource_exhausted, Code::deadline_exceeded, Code::corrupt,
          Code::conflict, Code::foreign, Code::denied, Code::io, Code::internal}) {
        EXPECT_GE(status_of(code), 400);
        EXPECT_FALSE(reason_phrase(status_of(code)).empty());
    }
}

}  // namespace
}  // namespace sandbox::control
