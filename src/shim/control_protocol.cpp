// SPDX-License-Identifier: Apache-2.0
#include "shim/control_protocol.hpp"

#include "canon/json.hpp"

namespace sandbox::shim {

namespace {

using canon::Json;

constexpr int kLargestSignal = 64;                     // SIGRTMAX, signal(7)
constexpr std::uint64_t kLongestStopMs = 86'400'000;   // a day

struct ToJson {
    Json operator()(const SignalRequest& r) const
    {
        return {{"op", "signal"}, {"signal", r.signal}};
    }
    Json operator()(const StopRequest& r) const
    {
        return {{"op", "stop"}, {"timeout_ms", r.timeout_ms}};
    }
    Json operator()(const WaitRequest& /*r*/) const { return {{"op", "wait"}}; }
    Json operator()(const Greeting& r) const
    {
        return {{"is", "greeting"},
                {"generation", r.generation},
                {"capabilities", r.capabilities},
                {"id", r.id}};
    }
    Json operator()(const Accepted& /*r*/) const { return {{"is", "accepted"}}; }
    Json operator()(const Rejected& r) const { return {{"is", "rejected"}, {"why", r.why}}; }
    Json operator()(const Running& r) const { return {{"is", "running"}, {"pid", r.pid}}; }
    Json operator()(const Failed& r) const
    {
        return {{"is", "failed"}, {"step", r.step}, {"why", r.why}};
    }
    Json operator()(const Ended& r) const
    {
        return {{"is", "ended"},
                {"code", r.exit.code},
                {"signal", r.exit.signal},
                {"reason", std::string(ledger::to_string(r.exit.reason))},
                {"oom_kills", r.exit.oom_kills},
                {"why", r.why}};
    }
};

// The object's members, each asked for once; `complete` is false when one was missing, of another
// type, out of bounds, or not asked for.
class Members {
public:
    explicit Members(const Json& object) : object_(object) {}

    std::string text(const char* key)
    {
        const Json* value = take(key);
        if (value == nullptr || !value->is_string()) return good_ = false, std::string();
        return value->get<std::string>();
    }
    std::int64_t number(const char* key, std::int64_t least, std::int64_t most)
    {
        const Json* value = take(key);
        if (value == nullptr || !value->is_number_integer()) return good_ = false, 0;
        const auto number = value->get<std::int64_t>();
        if (number < least || number > most) good_ = false;
        return number;
    }
    std::vector<std::string> texts(const char* key)
    {
        std::vector<std::string> items;
        const Json* value = take(key);
        if (value == nullptr || !value->is_array()) return good_ = false, items;
        for (const Json& item : *value) {
            if (!item.is_string()) return good_ = false, items;
            items.push_back(item.get<std::string>());
        }
        return items;
    }
    bool complete() const { return good_ && taken_ == object_.size(); }

private:
    const Json* take(const char* key)
    {
        const auto it = object_.find(key);
        if (it == object_.end()) return nullptr;
        ++taken_;
        return &*it;
    }

    const Json& object_;
    std::size_t taken_ = 0;
    bool good_ = true;
};

Result<Json> parse_packet(std::string_view packet)
{
    Json json = TRY(canon::parse(packet, {.bytes = kMostPacketBytes, .depth = 4}));
    if (!json.is_object()) return fail(Code::corrupt, "a control packet is one JSON object");
    return json;
}

std::unexpected<Error> not_understood(const std::string& what)
{
    return fail(Code::invalid_argument, "control packet '" + what + "' is not understood");
}

}  // namespace

Result<std::string> encode(const Request& request)
{
    return canon::serialize(std::visit(ToJson{}, request));
}

Result<std::string> encode(const Reply& reply)
{
    return canon::serialize(std::visit(ToJson{}, reply));
}

Result<Request> decode_control_request(std::string_view packet)
{
    const Json json = TRY(parse_packet(packet));
    Members members(json);
    const std::string op = members.text("op");
    Request request;
    if (op == "signal") {
        request = SignalRequest{static_cast<int>(members.number("signal", 1, kLargestSignal))};
    } else if (op == "stop") {
        request = StopRequest{static_cast<std::uint64_t>(
            members.number("timeout_ms", 0, static_cast<std::int64_t>(kLongestStopMs)))};
    } else if (op == "wait") {
        request = WaitRequest{};
    } else {
        return not_understood(op);
    }
    if (!members.complete()) return not_understood(op);
    return request;
}

Result<Reply> decode_control_reply(std::string_view packet)
{
    const Json json = TRY(parse_packet(packet));
    Members members(json);
    const std::string is = members.text("is");
    Reply reply;
    if (is == "greeting") {
        Greeting greeting;
        greeting.generation = static_cast<int>(members.number("generation", 1, INT32_MAX));
        greeting.capabilities = members.texts("capabilities");
        greeting.id = members.text("id");
        reply = greeting;
    } else if (is == "accepted") {
        reply = Accepted{};
    } else if (is == "rejected") {
        reply = Rejected{members.text("why")};
    } else if (is == "running") {
        reply = Running{static_cast<std::int32_t>(members.number("pid", 0, INT32_MAX))};
    } else if (is == "failed") {
        Failed failed;
        failed.step = members.text("step");
        failed.why = members.text("why");
        reply = failed;
    } else if (is == "ended") {
        Ended ended;
        ended.exit.code = static_cast<std::int32_t>(members.number("code", 0, 255));
        ended.exit.signal = static_cast<std::int32_t>(members.number("signal", 0, kLargestSignal));
        const auto reason = ledger::parse_exit_reason(members.text("reason"));
        ended.exit.oom_kills = static_cast<std::uint64_t>(
            members.number("oom_kills", 0, INT64_MAX));
        ended.why = members.text("why");
        if (!reason) return not_understood(is);
        ended.exit.reason = *reason;
        reply = ended;
    } else {
        return not_understood(is);
    }
    if (!members.complete()) return not_understood(is);
    return reply;
}

}  // namespace sandbox::shim
