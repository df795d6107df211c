// SPDX-License-Identifier: Apache-2.0
#include "shim/control_protocol.hpp"

#include "canon/json.hpp"

namespace sandbox::shim {

namespace {

using canon::Json;

constexpr int kLargestSignal = 64;                     // SIGRTMAX, signal(7)
constexpr std::uint64_t kLongestStopMs = 3'153'600'000'000;  // 100 years, as a profile may say

// Members in any order: the canonical form sorts them.
// One operator a message; a new one does not compile until it stands here.
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
    Json operator()(const PauseRequest& r) const
    {
        return {{"op", "pause"}, {"generation", r.generation}};
    }
    Json operator()(const ResumeRequest& r) const
    {
        return {{"op", "resume"}, {"generation", r.generation}};
    }
    Json operator()(const TouchRequest& /*r*/) const { return {{"op", "touch"}}; }
    Json operator()(const UpdateRequest& r) const
    {
        return {{"op", "update"}, {"file", r.file}, {"digest", r.digest}};
    }
    Json operator()(const OpenSession& r) const
    {
        return {{"op", "open-session"},
                {"terminal", r.terminal},
                {"attach", r.attach},
                {"rows", r.rows},
                {"cols", r.cols}};
    }
    Json operator()(const AttachSession& r) const
    {
        return {{"op", "attach-session"},
                {"session", r.session},
                {"from", r.from},
                {"rows", r.rows},
                {"cols", r.cols}};
    }
    Json operator()(const ListSessions& r) const
    {
        return {{"op", "list-sessions"}, {"after", r.after}};
    }
    Json operator()(const SignalSession& r) const
    {
        return {{"op", "signal-session"}, {"session", r.session}, {"signal", r.signal}};
    }
    Json operator()(const SessionOpen& r) const
    {
        return {{"is", "session-open"},
                {"session", r.session},
                {"terminal", r.terminal},
                {"offset", r.offset},
                {"logs", r.logs}};
    }
    Json operator()(const SessionList& r) const
    {
        Json rows = Json::array();
        for (const SessionRow& row : r.rows) {
            rows.push_back({{"number", row.number},
                            {"argv", row.argv},
                            {"terminal", row.terminal},
                            {"attached", row.attached},
                            {"pid", row.pid},
                            {"started", row.started},
                            {"bytes", row.bytes},
                            {"exit", row.exit ? exit_json(*row.exit) : Json(nullptr)}});
        }
        return {{"is", "session-list"}, {"rows", std::move(rows)}, {"more", r.more}};
    }
    static Json exit_json(const ledger::Exit& exit)
    {
        return {{"code", exit.code},
                {"signal", exit.signal},
                {"reason", std::string(ledger::to_string(exit.reason))},
                {"oom_kills", exit.oom_kills}};
    }
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
        Json object = exit_json(r.exit);
        object["is"] = "ended";
        object["why"] = r.why;
        return object;
    }
};

// The object's members, each asked for once; `complete` is false when one was missing, of another
// type, out of bounds, or not asked for. Nothing fails before the end, so that each message is read
// in one go.
class Members {
public:
    explicit Members(const Json& object) : object_(object) {}

    // Each getter gives something usable and remembers what was wrong.
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
    bool flag(const char* key)
    {
        const Json* value = take(key);
        if (value == nullptr || !value->is_boolean()) return good_ = false;
        return value->get<bool>();
    }
    // An object of its own.
    const Json* object(const char* key)
    {
        const Json* value = take(key);
        if (value == nullptr || !value->is_object()) return good_ = false, nullptr;
        return value;
    }
    const Json* list(const char* key)
    {
        const Json* value = take(key);
        if (value == nullptr || !value->is_array()) return good_ = false, nullptr;
        return value;
    }
    bool is_null(const char* key)
    {
        // Taken only if it is null; else it is left to object().
        const auto it = object_.find(key);
        return it != object_.end() && it->is_null() && take(key) != nullptr;
    }
    void refuse() { good_ = false; }
    // Counted, not looked up: a member that nobody asked for is one that we do not understand, and
    // it might narrow what is asked.
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

ledger::Exit take_exit(Members& members)
{
    ledger::Exit exit;
    // Bounds of wait(2) and signal(7), as in the ledger.
    exit.code = static_cast<std::int32_t>(members.number("code", 0, 255));
    exit.signal = static_cast<std::int32_t>(members.number("signal", 0, kLargestSignal));
    const auto reason = ledger::parse_exit_reason(members.text("reason"));
    exit.oom_kills = static_cast<std::uint64_t>(members.number("oom_kills", 0, INT64_MAX));
    if (reason)
        exit.reason = *reason;
    else
        members.refuse();
    return exit;
}

std::uint16_t take_size(Members& members, const char* key)
{
    return static_cast<std::uint16_t>(members.number(key, 0, UINT16_MAX));
}

OpenSession take_open_session(Members& members)
{
    OpenSession open;
    open.terminal = members.flag("terminal");
    open.attach = members.flag("attach");
    open.rows = take_size(members, "rows");
    open.cols = take_size(members, "cols");
    return open;
}

AttachSession take_attach_session(Members& members)
{
    AttachSession attach;
    attach.session = members.text("session");
    // -1: from where the last client left it.
    attach.from = members.number("from", -1, INT64_MAX);
    attach.rows = take_size(members, "rows");
    attach.cols = take_size(members, "cols");
    return attach;
}

SignalSession take_signal_session(Members& members)
{
    SignalSession signal;
    signal.session = members.text("session");
    signal.signal = static_cast<int>(members.number("signal", 1, kLargestSignal));
    return signal;
}

SessionOpen take_session_open(Members& members)
{
    SessionOpen open;
    open.session = members.text("session");
    open.terminal = members.flag("terminal");
    open.offset = static_cast<std::uint64_t>(members.number("offset", 0, INT64_MAX));
    open.logs = members.text("logs");
    return open;
}

SessionRow take_row(Members& list, const Json& object)
{
    SessionRow row;
    if (!object.is_object()) return list.refuse(), row;
    Members members(object);
    row.number = static_cast<std::uint32_t>(members.number("number", 1, UINT32_MAX));
    row.argv = members.texts("argv");
    row.terminal = members.flag("terminal");
    row.attached = members.flag("attached");
    row.pid = static_cast<std::int32_t>(members.number("pid", 0, INT32_MAX));
    row.started = members.text("started");
    row.bytes = static_cast<std::uint64_t>(members.number("bytes", 0, INT64_MAX));
    if (!members.is_null("exit")) {
        // Null or an object: what is neither is refused by object().
        if (const Json* exit = members.object("exit")) {
            Members inner(*exit);
            row.exit = take_exit(inner);
            if (!inner.complete()) list.refuse();
        }
    }
    if (!members.complete()) list.refuse();
    return row;
}

SessionList take_session_list(Members& members)
{
    SessionList list;
    // Bounded by the packet.
    if (const Json* rows = members.list("rows"))
        for (const Json& row : *rows) list.rows.push_back(take_row(members, row));
    list.more = members.flag("more");
    return list;
}

Result<Json> parse_packet(std::string_view packet)
{
    // Depth 8 holds the deepest reply (rows, each with its exit) and little more.
    Json json = TRY(canon::parse(packet, {.bytes = kMostPacketBytes, .depth = 8}));
    if (!json.is_object()) return fail(Code::corrupt, "a control packet is one JSON object");
    return json;
}

// invalid_argument, not corrupt: the packet may be a newer release's.
std::unexpected<Error> not_understood(const std::string& what)
{
    return fail(Code::invalid_argument, "control packet '" + what + "' is not understood");
}

}  // namespace

Result<std::string> encode(const Request& request)
{
    // Canonical, so that equal requests are equal bytes; the packet's size is the caller's to look
    // at.
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
        // Bounds here, so that the shim acts on what it got without another look.
        request = SignalRequest{static_cast<int>(members.number("signal", 1, kLargestSignal))};
    } else if (op == "stop") {
        request = StopRequest{static_cast<std::uint64_t>(
            members.number("timeout_ms", 0, static_cast<std::int64_t>(kLongestStopMs)))};
    } else if (op == "wait") {
        request = WaitRequest{};
    } else if (op == "pause") {
        request = PauseRequest{
            static_cast<std::uint32_t>(members.number("generation", 1, UINT32_MAX))};
    } else if (op == "resume") {
        request = ResumeRequest{
            static_cast<std::uint32_t>(members.number("generation", 1, UINT32_MAX))};
    } else if (op == "touch") {
        request = TouchRequest{};
    } else if (op == "update") {
        UpdateRequest update;
        update.file = members.text("file");
        update.digest = members.text("digest");
        request = update;
    } else if (op == "open-session") {
        request = take_open_session(members);
    } else if (op == "attach-session") {
        request = take_attach_session(members);
    } else if (op == "list-sessions") {
        request = ListSessions{static_cast<std::uint32_t>(members.number("after", 0, UINT32_MAX))};
    } else if (op == "signal-session") {
        request = take_signal_session(members);
    } else {
        return not_understood(op);
    }
    // Also one member too many: see complete().
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
        ended.exit = take_exit(members);
        ended.why = members.text("why");
        reply = ended;
    } else if (is == "session-open") {
        reply = take_session_open(members);
    } else if (is == "session-list") {
        reply = take_session_list(members);
    } else {
        // A reply of a newer shim: the client says so instead of guessing.
        return not_understood(is);
    }
    if (!members.complete()) return not_understood(is);
    return reply;
}

}  // namespace sandbox::shim
