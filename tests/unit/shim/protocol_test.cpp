// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "canon/canon.hpp"
#include "canon/json.hpp"
#include "shim/control_protocol.hpp"
#include "shim/request.hpp"
#include "support.hpp"

namespace sandbox::shim {
namespace {

using canon::Json;

LaunchRequest full_request()
{
    LaunchRequest request = test::request_below("/var/lib/sandbox");
    request.intents = {{1, "id_range", "268435456+65536"},
                       {2, "run_dir", request.binding.id.str()}};
    request.on_exit = OnExit::remove;
    request.out = Output::plain;
    request.err = Output::terminal;
    request.stdin_open = true;
    request.attached = true;
    request.rows = 40;
    request.cols = 65535;
    request.term = "vt220";
    request.log = {.bytes = 1U << 20, .files = 2};
    return request;
}

TEST(LaunchRequestCodec, ReadsBackWhatItWrote)
{
    for (const LaunchRequest& request : {full_request(), test::request_below("/tmp/x")}) {
        const auto back = decode_request(encode(request).value());
        ASSERT_TRUE(back) << back.error().message();
        EXPECT_EQ(*back, request);
    }
}

TEST(LaunchRequestCodec, RefusesARequestWithoutAnyOneMember)
{
    const Json whole = canon::parse(encode(full_request()).value()).value();
    for (const auto& [key, value] : whole.items()) {
        Json less = whole;
        less.erase(key);
        const auto decoded = decode_request(less.dump());
        ASSERT_FALSE(decoded) << key;
        EXPECT_EQ(decoded.error().code(), Code::corrupt) << key;
    }
}

TEST(LaunchRequestCodec, RefusesEachMemberOfAnotherTypeOrOutOfItsBounds)
{
    const Json whole = canon::parse(encode(full_request()).value()).value();
    const std::vector<Json> wrong{
        Json(nullptr),   Json(-1),   Json(1.5),        Json(1ULL << 53),
        Json("rubbish"), Json(true), Json::array({1}), Json::object({{"a", 1}})};
    for (const auto& [key, value] : whole.items()) {
        for (const Json& other : wrong) {
            if (other.type() == value.type() && !value.is_number()) continue;
            if (value.is_number_unsigned() && other.is_boolean()) continue;
            Json changed = whole;
            changed[key] = other;
            EXPECT_FALSE(decode_request(changed.dump())) << key << " = " << other.dump();
        }
    }
    for (const char* key : {"out", "err"}) {
        Json changed = whole;
        changed[key] = "rubbish";
        EXPECT_FALSE(decode_request(changed.dump())) << key;
    }
}

TEST(LaunchRequestCodec, RefusesMembersThatNobodyKnows)
{
    Json whole = canon::parse(encode(full_request()).value()).value();
    Json more = whole;
    more["extra"] = 1;
    EXPECT_FALSE(decode_request(more.dump()));
    whole["intents"][0]["extra"] = 1;
    EXPECT_FALSE(decode_request(whole.dump()));
}

TEST(LaunchRequestCodec, NamesAnotherReleaseAsTheReason)
{
    Json other = canon::parse(encode(full_request()).value()).value();
    other["version"] = kRequestVersion + 1;
    const auto decoded = decode_request(other.dump());
    ASSERT_FALSE(decoded);
    EXPECT_NE(decoded.error().message().find("release"), std::string::npos);
}

TEST(LaunchRequestCodec, RefusesEveryTruncationOfTheText)
{
    const std::string text = VALUE(encode(full_request()));
    for (std::size_t cut = 0; cut < text.size(); ++cut) {
        EXPECT_FALSE(decode_request(std::string_view(text).substr(0, cut))) << cut;
    }
}

TEST(ControlProtocol, ReadsBackEveryRequest)
{
    for (const Request& request :
         {Request(SignalRequest{15}), Request(SignalRequest{64}), Request(StopRequest{0}),
          Request(StopRequest{86'400'000}), Request(WaitRequest{}), Request(PauseRequest{1}),
          Request(ResumeRequest{4'294'967'295}), Request(TouchRequest{})}) {
        EXPECT_EQ(decode_control_request(encode(request).value()).value(), request);
    }
}

TEST(ControlProtocol, ReadsBackEveryRequestAboutSessions)
{
    for (const Request& request :
         {Request(OpenSession{}), Request(OpenSession{true, true, 40, 65535}),
          Request(AttachSession{"s7", -1, 0, 0}), Request(AttachSession{"s1", 1LL << 40, 24, 80}),
          Request(ListSessions{0}), Request(ListSessions{UINT32_MAX}),
          Request(SignalSession{"s2", 64})}) {
        EXPECT_EQ(decode_control_request(encode(request).value()).value(), request);
    }
    for (const std::string_view packet :
         {R"({"op":"open-session","terminal":true,"attach":true,"rows":1})",
          R"({"op":"open-session","terminal":1,"attach":true,"rows":1,"cols":1})",
          R"({"op":"open-session","terminal":true,"attach":true,"rows":65536,"cols":1})",
          R"({"op":"attach-session","session":"s2","from":-2,"rows":1,"cols":1})",
          R"({"op":"attach-session","session":2,"from":0,"rows":1,"cols":1})",
          R"({"op":"list-sessions","after":-1})", R"({"op":"list-sessions"})",
          R"({"op":"signal-session","session":"s2","signal":0})",
          R"({"op":"signal-session","session":"s2","signal":65})"}) {
        EXPECT_FALSE(decode_control_request(packet)) << packet;
    }
}

SessionRow full_row()
{
    SessionRow row;
    row.number = 12;
    row.argv = {"/bin/sh", "-c", "quote \" and \n"};
    row.terminal = true;
    row.attached = true;
    row.pid = 4711;
    row.started = "2026-01-02T03:04:05.678Z";
    row.bytes = 1ULL << 40;
    row.exit = ledger::Exit{
        .code = 137, .signal = 9, .reason = ledger::ExitReason::oom, .oom_kills = 2};
    return row;
}

TEST(ControlProtocol, ReadsBackEveryReplyAboutSessions)
{
    SessionRow running = full_row();
    running.exit.reset();
    for (const Reply& reply :
         {Reply(SessionOpen{}), Reply(SessionOpen{"s2", true, 1ULL << 40, ""}),
          Reply(SessionOpen{"s3", false, 0, "/a/folder"}), Reply(SessionList{}),
          Reply(SessionList{{full_row(), running}, true})}) {
        EXPECT_EQ(decode_control_reply(encode(reply).value()).value(), reply);
    }
}

TEST(ControlProtocol, HoldsAFullListInOnePacket)
{
    SessionList list;
    SessionRow row = full_row();
    row.argv.assign(kMostRowArguments, std::string(kMostArgumentBytes, '\\'));
    list.rows.assign(kMostRows, row);
    list.more = true;
    const std::string packet = encode(Reply(list)).value();
    EXPECT_LE(packet.size(), kMostPacketBytes);
    EXPECT_EQ(decode_control_reply(packet).value(), Reply(list));
}

TEST(ControlProtocol, ReadsBackEveryReply)
{
    Ended ended{
        .exit = {.code = 137, .signal = 9, .reason = ledger::ExitReason::oom, .oom_kills = 3},
        .why = "text with \"quotes\" and \n"};
    for (const Reply& reply :
         {Reply(Greeting{1, {"signal", "stop", "wait"}, "id"}), Reply(Greeting{7, {}, ""}),
          Reply(Accepted{}), Reply(Rejected{"why"}), Reply(Running{0}), Reply(Running{4711}),
          Reply(Failed{"crun", "why"}), Reply(ended), Reply(Ended{})}) {
        EXPECT_EQ(decode_control_reply(encode(reply).value()).value(), reply);
    }
    for (const auto reason :
         {ledger::ExitReason::exited, ledger::ExitReason::signal, ledger::ExitReason::oom,
          ledger::ExitReason::timeout, ledger::ExitReason::killed, ledger::ExitReason::unknown}) {
        ended.exit.reason = reason;
        EXPECT_EQ(decode_control_reply(encode(Reply(ended)).value()).value(), Reply(ended));
    }
}

TEST(ControlProtocol, RefusesRequestsItDoesNotUnderstand)
{
    for (const std::string_view packet : {"",
                                          "null",
                                          "[]",
                                          "{}",
                                          "7",
                                          "{\"op\":7}",
                                          R"({"op":"reboot"})",
                                          R"({"op":"signal"})",
                                          R"({"op":"signal","signal":0})",
                                          R"({"op":"signal","signal":65})",
                                          R"({"op":"signal","signal":-9})",
                                          R"({"op":"signal","signal":"9"})",
                                          R"({"op":"signal","signal":9.0})",
                                          R"({"op":"signal","signal":9,"to":"host"})",
                                          R"({"op":"signal","signal":18446744073709551615})",
                                          R"({"op":"signal","signal":9,"signal":9})",
                                          R"({"op":"stop"})",
                                          R"({"op":"stop","timeout_ms":-1})",
                                          R"({"op":"stop","timeout_ms":3153600000001})",
                                          R"({"op":"wait","x":1})",
                                          R"({"op":"pause"})",
                                          R"({"op":"pause","generation":0})",
                                          R"({"op":"resume","generation":4294967296})",
                                          R"({"op":"touch","generation":1})",
                                          R"({"op":"wait"} )"
                                          "x",
                                          "{\"op\":\"wa\xff\"}",
                                          R"({"op":{"op":{"op":{"op":{"op":1}}}}})"}) {
        EXPECT_FALSE(decode_control_request(packet)) << packet;
    }
    EXPECT_FALSE(decode_control_request("{\"op\":\"" + std::string(kMostPacketBytes, 'x') + "\"}"));
}

TEST(ControlProtocol, RefusesRepliesThatLackAnyOneMember)
{
    for (const Reply& reply :
         {Reply(Greeting{1, {"wait"}, "id"}), Reply(Rejected{"why"}), Reply(Running{1}),
          Reply(Failed{"crun", "why"}), Reply(Ended{}), Reply(SessionOpen{"s2", true, 1, ""})}) {
        const Json whole = canon::parse(encode(reply).value()).value();
        for (const auto& [key, value] : whole.items()) {
            Json less = whole;
            less.erase(key);
            EXPECT_FALSE(decode_control_reply(less.dump())) << less.dump();
            Json more = whole;
            more["extra"] = 1;
            EXPECT_FALSE(decode_control_reply(more.dump())) << more.dump();
            Json changed = whole;
            changed[key] = Json::object();
            EXPECT_FALSE(decode_control_reply(changed.dump())) << changed.dump();
        }
    }
    for (const std::string_view packet :
         {R"({"is":"ended","code":256,"oom_kills":0,"reason":"exited","signal":0,"why":""})",
          R"({"is":"ended","code":0,"oom_kills":0,"reason":"bored","signal":0,"why":""})",
          R"({"is":"running","pid":-1})", R"({"is":"running","pid":4294967296})",
          R"({"is":"greeting","capabilities":[1],"generation":1,"id":""})",
          R"({"is":"greeting","capabilities":[],"generation":0,"id":""})"}) {
        EXPECT_FALSE(decode_control_reply(packet)) << packet;
    }
}

}  // namespace
}  // namespace sandbox::shim
