// SPDX-License-Identifier: Apache-2.0
#include "control/codec.hpp"

#include <array>

#include "canon/json.hpp"
#include "control/fields.hpp"
#include "profile/normal.hpp"
#include "supervisor/inspect.hpp"

namespace sandbox::control {

using canon::Json;

namespace {

// Both lists are searched by name: the order is of no meaning, but nothing may be missing.
constexpr std::array kCodes{Code::invalid_argument,
                            Code::not_found,
                            Code::already_exists,
                            Code::permission_denied,
                            Code::unavailable,
                            Code::denied,
                            Code::resource_exhausted,
                            Code::deadline_exceeded,
                            Code::corrupt,
                            Code::conflict,
                            Code::foreign,
                            Code::io,
                            Code::internal};
constexpr std::array kDenialClasses{resolve::DenialClass::invalid_profile,
                                    resolve::DenialClass::policy_denied,
                                    resolve::DenialClass::unsupported_requirement,
                                    resolve::DenialClass::required_control_unavailable,
                                    resolve::DenialClass::backend_unavailable,
                                    resolve::DenialClass::backend_artifact_mismatch};

// By what the service calls it: one spelling for JSON, messages and tests.
template <class Enum, std::size_t N>
std::optional<Enum> named(const std::array<Enum, N>& all, std::string_view text)
{
    for (const Enum value : all) {
        if (to_string(value) == text) return value;
    }
    return std::nullopt;
}

// A value that a peer of this very release sent: what is missing has its default. A newer daemon
// may send more, an older one less; neither is a fault.
class Answer : public Fields {
public:
    Answer(const Json& json, const char* what) : Fields(json, std::string("answer: ") + what)
    {
        ignore_the_rest();
    }
    std::string word(const std::string& key) { return text(key).value_or(""); }
    // Bounds are those of the value's type: the daemon is trusted, its arithmetic is not.
    template <class Number>
    Number whole(const std::string& key)
    {
        return static_cast<Number>(integer(key, INT64_MIN, INT64_MAX).value_or(0));
    }
};

// What a wrong answer is: the peer's fault, not the caller's.
Status finish(Answer& answer)
{
    auto finished = answer.finish();
    if (!finished) return fail(Code::corrupt, finished.error().message());
    return {};
}

Json location_json(const SourceLocation& at)
{
    // For messages of a person; an editor needs all three.
    return {{"file", at.file}, {"line", at.line}, {"column", at.column}};
}

SourceLocation location_of(Fields& fields)
{
    SourceLocation at;
    at.file = fields.text("file").value_or("");
    at.line = static_cast<std::uint32_t>(fields.integer("line", 0, UINT32_MAX).value_or(0));
    at.column = static_cast<std::uint32_t>(fields.integer("column", 0, UINT32_MAX).value_or(0));
    return at;
}

template <class T, class Decode>
Result<std::vector<T>> list_from(const Json* list, Decode decode)
{
    std::vector<T> values;
    // Absent is an empty list: a peer that has nothing to say may leave it out.
    if (list == nullptr) return values;
    for (const Json& item : *list) values.push_back(TRY(decode(item)));
    return values;
}

// null and not left out: a member that is always there is easier on clients.
template <class T>
Json number_or_null(const std::optional<T>& value)
{
    return value ? Json(*value) : Json(nullptr);
}

}  // namespace

// One form of failure for every call, whatever the HTTP status (docs/api.md, Errors).
Json to_json(const Error& error)
{
    return {
        {"error", {{"code", std::string(to_string(error.code()))}, {"message", error.message()}}}};
}

Error error_from_json(const Json& json)
{
    // Never fails: an error that cannot be read is still an error.
    Answer outer(json, "error");
    const Json* body = outer.object("error");
    if (body == nullptr) return {Code::corrupt, "the daemon failed and did not say how"};
    Answer inner(*body, "error");
    const auto code = named(kCodes, inner.word("code"));
    // A code that only a newer daemon has: the message says what it was.
    return {code.value_or(Code::internal), inner.word("message")};
}

// The words of `validate -o json`, so that tools read both.
Json to_json(const std::vector<Diagnostic>& diagnostics)
{
    Json list = Json::array();
    for (const Diagnostic& d : diagnostics) {
        Json item = location_json(d.at);
        item["key"] = d.key;
        item["code"] = d.code;
        item["message"] = d.message;
        item["hint"] = d.hint;
        list.push_back(std::move(item));
    }
    return {{"diagnostics", std::move(list)}};
}

Result<std::vector<Diagnostic>> diagnostics_from_json(const Json& json)
{
    Answer outer(json, "diagnostics");
    return list_from<Diagnostic>(outer.array("diagnostics"),
                                 [](const Json& item) -> Result<Diagnostic> {
                                     Answer fields(item, "diagnostic");
                                     Diagnostic d;
                                     d.at = location_of(fields);
                                     d.key = fields.word("key");
                                     d.code = fields.word("code");
                                     d.message = fields.word("message");
                                     d.hint = fields.word("hint");
                                     TRY_VOID(finish(fields));
                                     return d;
                                 });
}

// Strict in the class only: a denial must not be taken for something milder.
Result<std::vector<resolve::Denial>> denials_from_json(const Json& json)
{
    Answer outer(json, "denials");
    return list_from<resolve::Denial>(
        outer.array("denials"), [](const Json& item) -> Result<resolve::Denial> {
            Answer fields(item, "denial");
            resolve::Denial d;
            const auto denial_class = named(kDenialClasses, fields.word("class"));
            if (!denial_class) return fail(Code::corrupt, "answer: a denial of an unknown class");
            d.denial_class = *denial_class;
            d.reason = fields.word("reason");
            d.key = fields.word("key");
            d.requirement = fields.word("requirement");
            d.fact = fields.word("fact");
            d.mend = fields.word("mend");
            if (const Json* source = fields.object("source")) {
                Answer place(*source, "source");
                d.source = location_of(place);
            }
            TRY_VOID(finish(fields));
            return d;
        });
}

// null: it has not ended.
Json to_json(const std::optional<ledger::Exit>& exit)
{
    if (!exit) return nullptr;
    return {{"code", exit->code},
            {"signal", exit->signal},
            {"reason", std::string(ledger::to_string(exit->reason))},
            {"oom_kills", exit->oom_kills}};
}

Result<std::optional<ledger::Exit>> exit_from_json(const Json* json)
{
    if (json == nullptr || json->is_null()) return std::nullopt;
    Answer fields(*json, "exit");
    ledger::Exit exit;
    exit.code = fields.whole<std::int32_t>("code");
    exit.signal = fields.whole<std::int32_t>("signal");
    exit.oom_kills = fields.count("oom_kills").value_or(0);
    // A reason that only a newer daemon knows.
    exit.reason =
        ledger::parse_exit_reason(fields.word("reason")).value_or(ledger::ExitReason::unknown);
    TRY_VOID(finish(fields));
    return exit;
}

Json to_json(const supervisor::RunResult& result)
{
    return {{"id", result.id.str()},
            {"name", result.name.str()},
            {"exit", to_json(result.exit)},
            {"exit_status", result.exit_status},
            {"why", result.why}};
}

Result<supervisor::RunResult> run_result_from_json(const Json& json)
{
    Answer fields(json, "run");
    supervisor::RunResult result;
    // Not checked: an id of the daemon's is only shown and sent back.
    result.id = SandboxId(fields.word("id"));
    result.name = SandboxName(fields.word("name"));
    result.exit = TRY(exit_from_json(fields.find("exit")));
    result.exit_status = fields.whole<int>("exit_status");
    result.why = fields.word("why");
    TRY_VOID(finish(fields));
    return result;
}

Json to_json(const supervisor::SessionResult& result)
{
    // Offsets are what `attach` begins with next time.
    return {{"session", result.session},         {"exit", to_json(result.exit)},
            {"exit_status", result.exit_status}, {"why", result.why},
            {"out_offset", result.out_offset},   {"err_offset", result.err_offset}};
}

Result<supervisor::SessionResult> session_result_from_json(const Json& json)
{
    Answer fields(json, "session");
    supervisor::SessionResult result;
    result.session = fields.word("session");
    result.exit = TRY(exit_from_json(fields.find("exit")));
    result.exit_status = fields.whole<int>("exit_status");
    result.why = fields.word("why");
    result.out_offset = fields.count("out_offset").value_or(0);
    result.err_offset = fields.count("err_offset").value_or(0);
    TRY_VOID(finish(fields));
    return result;
}

Json to_json(const supervisor::SessionInfo& info)
{
    return {{"session", info.session},       {"argv", info.argv},
            {"terminal", info.terminal},     {"running", info.running},
            {"attached", info.attached},     {"pid", info.pid},
            {"started", info.started},       {"out_offset", info.out_offset},
            {"err_offset", info.err_offset}, {"exit", to_json(info.exit)}};
}

Result<supervisor::SessionInfo> session_info_from_json(const Json& json)
{
    Answer fields(json, "session");
    supervisor::SessionInfo info;
    info.session = fields.word("session");
    info.argv = fields.texts("argv").value_or(std::vector<std::string>());
    info.terminal = fields.boolean("terminal").value_or(false);
    info.running = fields.boolean("running").value_or(false);
    info.attached = fields.boolean("attached").value_or(false);
    info.pid = fields.whole<std::int32_t>("pid");
    info.started = fields.word("started");
    info.out_offset = fields.count("out_offset").value_or(0);
    info.err_offset = fields.count("err_offset").value_or(0);
    info.exit = TRY(exit_from_json(fields.find("exit")));
    TRY_VOID(finish(fields));
    return info;
}

// Bytes, nanoseconds and counts as the kernel has them; clients round.
Json to_json(const supervisor::Stats& stats)
{
    return {{"id", stats.id.str()},
            {"name", stats.name.str()},
            {"memory_bytes", stats.memory_bytes},
            {"memory_limit", number_or_null(stats.memory_limit)},
            {"memory_peak", stats.memory_peak},
            {"cpu_ns", stats.cpu_ns},
            {"throttled_ns", stats.throttled_ns},
            {"pids", stats.pids},
            {"pids_limit", number_or_null(stats.pids_limit)},
            {"oom_kills", stats.oom_kills},
            {"moment_ns", stats.moment_ns}};
}

Result<supervisor::Stats> stats_from_json(const Json& json)
{
    Answer fields(json, "stats");
    supervisor::Stats stats;
    stats.id = SandboxId(fields.word("id"));
    stats.name = SandboxName(fields.word("name"));
    stats.memory_bytes = fields.count("memory_bytes").value_or(0);
    // Nothing: there is no limit.
    stats.memory_limit = fields.count("memory_limit");
    stats.memory_peak = fields.count("memory_peak").value_or(0);
    stats.cpu_ns = fields.count("cpu_ns").value_or(0);
    stats.throttled_ns = fields.count("throttled_ns").value_or(0);
    stats.pids = fields.count("pids").value_or(0);
    stats.pids_limit = fields.count("pids_limit");
    stats.oom_kills = fields.count("oom_kills").value_or(0);
    stats.moment_ns = fields.count("moment_ns").value_or(0);
    TRY_VOID(finish(fields));
    return stats;
}

Json to_json(const supervisor::CopyResult& result)
{
    // Left out where there is nothing to say: most copies have no notes.
    Json json{{"files", result.files}, {"bytes", result.bytes}};
    if (!result.notes.empty()) json["notes"] = result.notes;
    return json;
}

Result<supervisor::CopyResult> copy_result_from_json(const Json& json)
{
    Answer fields(json, "copy");
    supervisor::CopyResult result;
    result.files = fields.count("files").value_or(0);
    result.bytes = fields.count("bytes").value_or(0);
    result.notes = fields.text("notes").value_or("");
    TRY_VOID(finish(fields));
    return result;
}

namespace {

// Never abridged: a report is what a person compares with the ledger.
Json lines_json(const std::vector<supervisor::ReportLine>& lines)
{
    Json list = Json::array();
    for (const auto& line : lines) {
        list.push_back({{"id", line.id.str()}, {"what", line.what}, {"why", line.why}});
    }
    return list;
}

Result<supervisor::ReportLine> line_from_json(const Json& json)
{
    Answer fields(json, "report");
    supervisor::ReportLine line;
    line.id = SandboxId(fields.word("id"));
    line.what = fields.word("what");
    line.why = fields.word("why");
    TRY_VOID(finish(fields));
    return line;
}

}  // namespace

Json to_json(const supervisor::Report& report)
{
    return {{"sandboxes", report.sandboxes},
            {"found", lines_json(report.found)},
            {"removed", lines_json(report.removed)},
            {"left", lines_json(report.left)},
            {"now_resting", lines_json(report.now_resting)}};
}

Result<supervisor::Report> report_from_json(const Json& json)
{
    using Line = supervisor::ReportLine;
    Answer fields(json, "report");
    supervisor::Report report;
    report.sandboxes = fields.count("sandboxes").value_or(0);
    report.found = TRY(list_from<Line>(fields.array("found"), line_from_json));
    report.removed = TRY(list_from<Line>(fields.array("removed"), line_from_json));
    report.left = TRY(list_from<Line>(fields.array("left"), line_from_json));
    report.now_resting = TRY(list_from<Line>(fields.array("now_resting"), line_from_json));
    TRY_VOID(finish(fields));
    return report;
}

Json to_json(const supervisor::Listed& listed, bool detail)
{
    // The element of the contract, docs/api.md.
    Json json = supervisor::summarize(listed);
    if (!detail) return json;
    const ledger::Sandbox& s = listed.sandbox;
    // What `ps` of ours shows beside the contract: other clients get the plain element.
    json["recorded_state"] = std::string(ledger::to_string(s.state));
    json["desired"] = std::string(ledger::to_string(s.desired));
    json["shim_alive"] = listed.shim_alive;
    if (listed.restart_due_ns) json["restart_due_ns"] = *listed.restart_due_ns;
    json["plan_digest"] = s.plan_digest;
    json["labels"] = s.labels;
    json["log_path"] = s.log_path;
    json["created_boottime_ns"] = s.created.boottime_ns;
    json["remove_on_exit"] = s.remove_on_exit == ledger::RemoveOnExit::yes;
    return json;
}

Result<supervisor::Listed> listed_from_json(const Json& json)
{
    Answer fields(json, "sandbox");
    supervisor::Listed listed;
    ledger::Sandbox& s = listed.sandbox;
    s.id = SandboxId(fields.word("id"));
    s.name = SandboxName(fields.word("name"));
    s.profile = fields.word("profile");
    s.driver = fields.word("driver");
    s.isolation_class = fields.word("isolation_class");
    const auto state = ledger::parse_state(fields.word("recorded_state"));
    // Without a state nothing sensible can be shown.
    if (!state) return fail(Code::corrupt, "answer: a sandbox in an unknown state");
    s.state = *state;
    // Only shown; the daemon acts on its own.
    s.desired = ledger::parse_desired(fields.word("desired")).value_or(ledger::Desired::running);
    listed.shim_alive = fields.boolean("shim_alive").value_or(false);
    listed.restart_due_ns = fields.count("restart_due_ns");
    s.plan_digest = fields.word("plan_digest");
    s.labels = fields.text("labels").value_or("{}");
    s.log_path = fields.word("log_path");
    s.generation = fields.whole<std::uint32_t>("generation");
    s.created.utc = fields.word("created");
    s.created.boottime_ns = fields.count("created_boottime_ns").value_or(0);
    if (fields.boolean("remove_on_exit").value_or(false)) {
        s.remove_on_exit = ledger::RemoveOnExit::yes;
    }
    // As inspect has it, null while it runs.
    s.exit = TRY(exit_from_json(fields.find("exit")));
    TRY_VOID(finish(fields));
    return listed;
}

Json to_json(const Verdict& verdict)
{
    // Said apart from "broken", so that a script needs no test for presence.
    Json json{{"whole", !verdict.broken.has_value()},
              {"records", verdict.head.seq},
              {"head", verdict.head.digest}};
    if (verdict.broken) {
        json["broken"] = {{"line", verdict.broken->line}, {"why", verdict.broken->why}};
    }
    return json;
}

Result<Verdict> verdict_from_json(const Json& json)
{
    Answer fields(json, "audit");
    Verdict verdict;
    verdict.head.seq = fields.count("records").value_or(0);
    verdict.head.digest = fields.word("head");
    // As a line of the file: what a person looks up.
    if (const Json* broken = fields.object("broken")) {
        Answer inner(*broken, "broken");
        verdict.broken = audit::Broken{inner.count("line").value_or(0), inner.word("why")};
    }
    TRY_VOID(finish(fields));
    return verdict;
}

}  // namespace sandbox::control
