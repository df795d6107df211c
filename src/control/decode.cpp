// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <csignal>
#include <cstring>

#include "canon/json.hpp"
#include "control/calls.hpp"
#include "control/codec.hpp"
#include "control/fields.hpp"
#include "profile/normal.hpp"

namespace sandbox::control {

namespace {

// A UUID has 36; this is for whoever has longer names.
constexpr std::size_t kMostKeyBytes = 128;  // of an Idempotency-Key
// Of a body; a plan file is the deepest.
constexpr std::size_t kDepth = 64;

Error wrong(std::string message) { return {Code::invalid_argument, std::move(message)}; }

// The words of a query, each asked for once.
class Query {
public:
    explicit Query(std::map<std::string, std::string> words) : words_(std::move(words)) {}

    Result<bool> flag(const std::string& key) const
    {
        // Absent is no.
        const std::string* value = find(key);
        if (value == nullptr || *value == "0" || *value == "false") return false;
        if (*value == "1" || *value == "true") return true;
        return fail(wrong(key + " wants 0 or 1"));
    }
    Result<std::uint64_t> number(const std::string& key) const
    {
        const std::string* value = find(key);
        std::uint64_t number = 0;
        if (value == nullptr) return number;
        const char* end = value->data() + value->size();
        const auto [stop, error] = std::from_chars(value->data(), end, number);
        if (error != std::errc{} || stop != end) return fail(wrong(key + " wants a number"));
        return number;
    }
    Result<std::optional<Millis>> duration(const std::string& key) const
    {
        const std::string* value = find(key);
        if (value == nullptr) return std::nullopt;
        // What the operation takes for absent.
        const auto span = parse_duration(*value);
        if (!span) return fail(wrong(key + " wants a duration such as 5s"));
        return span;
    }
    const std::string* find(const std::string& key) const
    {
        const auto it = words_.find(key);
        return it == words_.end() ? nullptr : &it->second;
    }
    const auto& words() const { return words_; }

private:
    std::map<std::string, std::string> words_;
};

// Words are not decoded by each operation alone: what is not in the route's list is a mistake of
// every one.
Result<Query> decode_query(const Route& route, const std::string& text)
{
    auto words = parse_query(text);
    // A word that is unknown might narrow what is asked: refused, as unknown members are.
    if (!words) return fail(wrong("the query has a word twice or a broken escape"));
    for (const auto& [key, value] : *words) {
        if (std::find(route.query.begin(), route.query.end(), key) == route.query.end()) {
            return fail(wrong("no query word of this path is called '" + escaped(key) + "'"));
        }
    }
    return Query(std::move(*words));
}

// Takes {ref} and {session} out of the path.
Status decode_path(const Route& route, std::string_view path, Call& call)
{
    // Pattern and path fit already: they have as many parts.
    std::string_view pattern = route.pattern;
    while (!pattern.empty()) {
        const std::size_t end = pattern.find('/');
        const std::size_t cut = path.find('/');
        const std::string_view word = pattern.substr(0, end);
        // Decoded after it was cut out: "%2F" is then no separator.
        if (word.starts_with('{')) {
            auto value = percent_decode(path.substr(0, cut));
            if (!value) return fail(wrong("the path holds a broken escape"));
            (word == "{ref}" ? call.reference : call.session) = std::move(*value);
        }
        pattern.remove_prefix(end == std::string_view::npos ? pattern.size() : end + 1);
        path.remove_prefix(cut == std::string_view::npos ? path.size() : cut + 1);
    }
    return {};
}

Result<supervisor::ProfileText> decode_profile_text(const canon::Json& json, const char* what)
{
    // Text and not a path, so that the rights that count are the client's.
    Fields fields(json, what);
    supervisor::ProfileText profile;
    // Only for messages: the daemon opens no file by this name.
    profile.file = fields.text("file").value_or("<request>");
    const auto text = fields.text("text");
    if (!text) fields.refuse("text is missing");
    TRY_VOID(fields.finish());
    profile.text = *text;
    return profile;
}

Status decode_adjustments(Fields& fields, supervisor::Adjustments& adjustments)
{
    // As typed by a client; profile::check() bounds them with the rest.
    if (auto argv = fields.texts("argv")) adjustments.argv = std::move(*argv);
    if (auto env = fields.table("env")) adjustments.env = std::move(*env);
    adjustments.terminal = fields.boolean("terminal");
    if (const canon::Json* overlay = fields.object("overlay")) {
        adjustments.overlay = TRY(decode_profile_text(*overlay, "overlay"));
    }
    return {};
}

// Also an overlay that changes nothing: it was asked for.
bool adjusts(const supervisor::Adjustments& a)
{
    return !a.argv.empty() || !a.env.empty() || a.terminal || a.overlay;
}

Status decode_plan_source(Fields& fields, PlanSource& source)
{
    const canon::Json* profile = fields.find("profile");
    const canon::Json* plan = fields.object("plan");
    // Neither would be nothing to do, both would be two answers.
    if ((profile == nullptr) == (plan == nullptr)) {
        fields.refuse("wants either a profile or a plan");
    }
    if (profile != nullptr && profile->is_string()) {
        // The daemon reads no path that a client names: only its own folder of profiles.
        source.profile_name = profile->get<std::string>();
        if (source.profile_name.find('/') != std::string::npos || source.profile_name == "-" ||
            source.profile_name.ends_with(".toml")) {
            fields.refuse("profile wants a name of profiles.d, or an object with file and text");
        }
    } else if (profile != nullptr) {
        source.profile = TRY(decode_profile_text(*profile, "profile"));
    }
    // Made canonical again: its digest is checked over these bytes.
    if (plan != nullptr) source.plan_file = TRY(canon::serialize(*plan)) + "\n";
    TRY_VOID(decode_adjustments(fields, source.adjustments));
    // They are part of the request that the plan carries.
    if (plan != nullptr && adjusts(source.adjustments)) {
        fields.refuse("a plan fixes the command, environment and overlay");
    }
    return {};
}

Status decode_console(Fields& fields, Call& call)
{
    // Without it the session gets an end of file at once.
    call.input = fields.boolean("stdin").value_or(false);
    const canon::Json* json = fields.object("console");
    if (json == nullptr) return {};
    Fields console(*json, "console");
    call.console.terminal = console.boolean("terminal").value_or(false);
    // 0: not known. TIOCSWINSZ takes 16 bits.
    call.console.rows = static_cast<std::uint16_t>(
        console.integer("rows", 0, UINT16_MAX).value_or(0));
    call.console.cols = static_cast<std::uint16_t>(
        console.integer("cols", 0, UINT16_MAX).value_or(0));
    call.console.term = console.text("term").value_or("");
    call.console.detach_keys = console.text("detach_keys").value_or("");
    return console.finish();
}

Status decode_run(Fields& fields, Call& call)
{
    // The same as for `plan`: what is run is planned first.
    TRY_VOID(decode_plan_source(fields, call.plan));
    call.name = fields.text("name").value_or("");
    call.start = fields.boolean("start").value_or(true);
    if (fields.boolean("remove_on_exit").value_or(false)) {
        call.keep = supervisor::Keep::remove_on_exit;
    }
    return decode_console(fields, call);
}

Status decode_exec(Fields& fields, Call& call)
{
    supervisor::ExecRequest& exec = call.exec;
    exec.reference = call.reference;
    if (auto argv = fields.texts("argv")) exec.argv = std::move(*argv);
    // Checked here, so that nothing is opened for it.
    if (exec.argv.empty()) fields.refuse("argv is missing");
    if (auto env = fields.table("env")) exec.env = std::move(*env);
    if (const auto user = fields.text("user")) {
        // Numeric only: names are the image's.
        exec.user = profile::parse_user(*user);
        if (!exec.user) fields.refuse("user wants UID:GID");
    }
    exec.cwd = fields.text("cwd").value_or("");
    if (const auto timeout = fields.text("timeout")) {
        exec.timeout = parse_duration(*timeout);
        if (!exec.timeout) fields.refuse("timeout wants a duration such as 5s");
    }
    exec.terminal = fields.boolean("terminal").value_or(false);
    exec.expect_plan = fields.text("expect_plan").value_or("");
    if (fields.boolean("detach").value_or(false)) exec.attach = supervisor::Attach::detached;
    TRY_VOID(decode_console(fields, call));
    return {};
}

Status decode_attach(Fields& fields, Call& call)
{
    call.attach.reference = call.reference;
    call.attach.session = fields.text("session").value_or("");
    // Absent: from where the last one left.
    call.attach.out_offset = fields.count("out_offset");
    call.attach.err_offset = fields.count("err_offset");
    return decode_console(fields, call);
}

Status decode_copy(Fields& fields, Call& call)
{
    using Way = supervisor::CopyRequest::Way;
    call.copy.reference = call.reference;
    call.copy.path = fields.text("path").value_or("");
    // Words of ours in JSON; numbers would have to be looked up.
    const std::string way = fields.text("way").value_or("");
    if (call.copy.path.empty() || (way != "into" && way != "out_of")) {
        fields.refuse("wants a path, and a way that is into or out_of");
    }
    call.copy.way = way == "into" ? Way::into : Way::out_of;
    // The archive is the input.
    call.input = way == "into";
    const std::string landing = fields.text("landing").value_or("named");
    if (landing != "named" && landing != "content") {
        fields.refuse("wants a landing that is named or content");
    }
    using Landing = supervisor::CopyRequest::Landing;
    call.copy.landing = landing == "named" ? Landing::named : Landing::content;
    // 0: the service's own bound.
    call.copy.most_bytes = fields.count("most_bytes").value_or(0);
    return {};
}

Status decode_apply(Fields& fields, Call& call)
{
    using Request = supervisor::ApplyRequest;
    if (const canon::Json* files = fields.array("files")) {
        for (const canon::Json& file : *files) {
            call.apply.files.push_back(TRY(decode_profile_text(file, "files")));
        }
    }
    if (const canon::Json* plan = fields.object("plan")) {
        // Canonical bytes, as everywhere: the plan's digest is over them.
        const std::string text = TRY(canon::serialize(*plan)) + "\n";
        call.apply.plan = supervisor::ProfileText{fields.text("plan_file").value_or("<request>"),
                                                  text};
    }
    // Names of what a full apply covers; nothing is opened by them.
    if (auto folders = fields.texts("folders")) call.apply.folders = std::move(*folders);
    if (fields.boolean("dry_run").value_or(false)) call.apply.mode = Request::Mode::look;
    return {};
}

Status decode_body(const Route& route, const std::string& text, Call& call)
{
    const bool wants = route.most_body != 0;
    // A body where none is expected is a client that means something else.
    if (!wants) return text.empty() ? Status{} : fail(wrong("this path takes no body"));
    // An empty body is an empty object: curl without -d.
    const canon::Json json =
        text.empty()
            ? canon::Json::object()
            : TRY_WITH(canon::parse(text, {.bytes = kMostPlanBytes, .depth = kDepth}), "body");
    Fields fields(json, "body");
    switch (call.operation) {
    case Operation::plan:
        TRY_VOID(decode_plan_source(fields, call.plan));
        if (const canon::Json* snapshot = fields.object("snapshot")) {
            call.plan.snapshot = TRY_WITH(facts::snapshot_from_json(*snapshot), "snapshot");
        }
        break;
    case Operation::run: TRY_VOID(decode_run(fields, call)); break;
    case Operation::start: TRY_VOID(decode_console(fields, call)); break;
    case Operation::exec: TRY_VOID(decode_exec(fields, call)); break;
    case Operation::attach: TRY_VOID(decode_attach(fields, call)); break;
    case Operation::copy: TRY_VOID(decode_copy(fields, call)); break;
    case Operation::apply: TRY_VOID(decode_apply(fields, call)); break;
    // Only what has a body gets here.
    default: break;
    }
    return fields.finish();
}

Status decode_words(const Route& route, const std::string& text, Call& call)
{
    // All words of all paths: the route's list has let through what this one knows.
    const Query query = TRY(decode_query(route, text));
    call.all = TRY(query.flag("all"));
    call.detail = TRY(query.flag("detail"));
    call.follow = TRY(query.flag("follow"));
    call.after = TRY(query.number("after"));
    call.timeout = TRY(query.duration("timeout"));
    if (TRY(query.flag("force"))) call.force = supervisor::SandboxService::Force::yes;
    if (const std::string* since = query.find("since")) call.since = *since;
    if (const std::string* reference = query.find("ref")) call.reference = *reference;
    // Only these two have a default that acts.
    const bool signals = call.operation == Operation::kill ||
                         call.operation == Operation::signal_session;
    if (!signals) return {};
    const std::string* signal = query.find("signal");
    // KILL where nothing is said, as `kill` of containers does.
    const auto number = parse_signal(signal == nullptr ? "KILL" : *signal);
    if (!number) return fail(wrong("no signal is called '" + escaped(*signal) + "'"));
    call.signal = *number;
    return {};
}

Status check_upgrade(const Route& route, const HttpRequest& request, const Call& call)
{
    // A stream on a path without one would be an answer the client cannot read.
    if (request.upgrade && route.upgrade == Upgrade::never) {
        return fail(wrong("this path has no stream"));
    }
    if (call.input && !request.upgrade) {
        return fail(wrong("standard input needs a stream: Upgrade: sandbox-stream"));
    }
    if (request.upgrade && call.operation == Operation::run && !call.start) {
        return fail(wrong("what is only created has no stream"));
    }
    // One word: it becomes part of an operation id.
    const bool one_word = request.operation.size() <= kMostKeyBytes &&
                          request.operation.find_first_of(" \t") == std::string::npos;
    if (!one_word) return fail(wrong("Idempotency-Key wants one word of at most 128 bytes"));
    // A stream has happened; what went over it cannot be told again.
    if (request.upgrade && !request.operation.empty()) {
        return fail(wrong("a stream cannot be repeated: no Idempotency-Key"));
    }
    return {};
}

Status decode_into(const Route& route, const HttpRequest& request, Call& call)
{
    // In the order in which a client reads its own request; the last looks at all of it.
    TRY_VOID(decode_path(route, request.path, call));
    TRY_VOID(decode_words(route, request.query, call));
    TRY_VOID(decode_body(route, request.body, call));
    return check_upgrade(route, request, call);
}

bool needs_upgrade(const Route& route, const Call& call)
{
    // What a session writes needs a stream; a detached one has none.
    return route.upgrade == Upgrade::must || (call.operation == Operation::exec &&
                                              call.exec.attach == supervisor::Attach::foreground);
}

}  // namespace

std::expected<Call, CallFault> decode_call(const Route& route, const HttpRequest& request)
{
    Call call;
    call.operation = route.operation;
    call.upgraded = request.upgrade;
    call.operation_id = request.operation;
    if (auto decoded = decode_into(route, request, call); !decoded) {
        // A body that is no JSON is the client's mistake, not damage here.
        const bool stored = decoded.error().code() == Code::corrupt;  // JSON that does not parse
        return std::unexpected(stored ? CallFault{400, wrong(decoded.error().message())}
                                      : fault_of(decoded.error()));
    }
    // RFC 9110, 15.5.22: 426 says which protocol is wanted.
    if (needs_upgrade(route, call) && !request.upgrade) {
        return std::unexpected(
            CallFault{426, wrong("this needs a stream: Connection: Upgrade, Upgrade: "
                                 "sandbox-stream; or \"detach\": true for exec")});
    }
    // What streams lasts as long as its client.
    call.duration = request.upgrade ? Duration::long_lasting : route.duration;
    // The same key for something else is a client's mistake, found by this digest.
    if (!request.operation.empty()) {
        call.request_digest = canon::digest(request.method + " " + request.path + "?" +
                                            request.query + "\n" + request.body);
    }
    return call;
}

std::optional<int> parse_signal(std::string_view text)
{
    int number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc{} && end == text.data() + text.size()) {
        // 0 would be a question, not a signal.
        return number >= 1 && number <= SIGRTMAX ? std::optional(number) : std::nullopt;
    }
    if (text.starts_with("SIG")) text.remove_prefix(3);
    // Not strsignal(3), which is for people and depends on the locale.
    for (int signal = 1; signal < NSIG; ++signal) {
        const char* known = sigabbrev_np(signal);
        if (known != nullptr && text == known) return signal;
    }
    return std::nullopt;
}

}  // namespace sandbox::control
