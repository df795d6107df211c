// SPDX-License-Identifier: Apache-2.0
#include "control/remote.hpp"

#include "canon/json.hpp"
#include "control/codec.hpp"
#include "control/fields.hpp"

namespace sandbox::control {

using canon::Json;

namespace {

constexpr Millis kGreeting{2'000};  // one that takes longer is not to be waited for by every verb
constexpr canon::Limits kMostAnswer{.bytes = kMostResultBytes, .depth = 64};

std::string at(std::string_view reference, std::string_view rest = {})
{
    return "/v1/sandboxes/" + percent_encode(reference) + std::string(rest);
}

std::string compact(const Json& json)
{
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string timeout_query(std::optional<Millis> timeout)
{
    return timeout ? "?timeout=" + format_duration(*timeout) : "";
}

bool has(const Json& json, const char* key) { return json.is_object() && json.contains(key); }

Result<Json> parse_answer(const HttpAnswer& answer)
{
    return TRY_WITH(canon::parse(answer.body, kMostAnswer), "answer of the daemon");
}

// A failure is an error object whatever the status; anything else is the answer.
Result<Json> answer_or_error(Json json)
{
    if (has(json, "error")) return fail(error_from_json(json));
    return json;
}

}  // namespace

Result<std::unique_ptr<RemoteService>> RemoteService::connect(const std::string& socket_path)
{
    auto client = TRY(HttpClient::connect(socket_path));
    std::unique_ptr<RemoteService> service(new RemoteService(std::move(client)));
    TRY_VOID(service->greet());
    return service;
}

Status RemoteService::greet()
{
    const auto answer = TRY(
        client_.request("GET", "/v1/version", {}, sys::Deadline::after(kGreeting)));
    const Json json = TRY(answer_or_error(TRY(parse_answer(answer))));
    Fields fields(json, "version");
    fields.ignore_the_rest();
    const auto generation = fields.integer("generation", 0, INT32_MAX);
    const auto capabilities = fields.texts("capabilities");
    TRY_VOID(fields.finish());
    // The lower generation wins: a newer daemon still speaks ours, an older one is not yet met.
    if (generation.value_or(0) < kApiGeneration || !capabilities) {
        return fail(Code::unavailable, "the daemon speaks generation " +
                                           std::to_string(generation.value_or(0)) + ", wanted " +
                                           std::to_string(kApiGeneration) + ": restart sandboxd");
    }
    capabilities_.insert(capabilities->begin(), capabilities->end());
    return {};
}

Status RemoteService::require(const char* capability) const
{
    if (capabilities_.contains(capability)) return {};
    return fail(Code::unavailable, std::string("the running sandboxd does not know '") +
                                       capability + "': restart it after an upgrade");
}

Result<Json> RemoteService::ask(const char* capability, std::string_view method,
                                const std::string& target, std::string_view body)
{
    TRY_VOID(require(capability));
    return answer_or_error(TRY(parse_answer(TRY(client_.request(method, target, body)))));
}

Status RemoteService::act(const char* capability, std::string_view reference,
                          const std::string& verb)
{
    TRY(ask(capability, "POST", at(reference, "/" + verb)));
    return {};
}

Result<Json> RemoteService::stream(const char* capability, const std::string& target,
                                   const Json& body, const supervisor::Console& console, bool input)
{
    TRY_VOID(require(capability));
    const auto answer = TRY(client_.stream(target, compact(body), console, input));
    return answer_or_error(TRY(parse_answer(answer)));
}

Result<supervisor::PlanOutcome> RemoteService::plan_body(const Json& body)
{
    const std::string text = compact(body);
    TRY_VOID(require("plan"));
    const auto answer = TRY(client_.request("POST", "/v1/plan", text));
    const Json json = TRY(answer_or_error(TRY(parse_answer(answer))));
    refused_.clear();
    if (has(json, "denials")) {
        refused_ = text;
        return supervisor::PlanOutcome(TRY(denials_from_json(json)));
    }
    if (has(json, "diagnostics")) {
        return supervisor::PlanOutcome(supervisor::ProfileErrors{TRY(diagnostics_from_json(json))});
    }
    return supervisor::PlanOutcome(TRY_WITH(plan::decode_file(answer.body), "plan of the daemon"));
}

Result<supervisor::PlanOutcome> RemoteService::plan(const supervisor::ProfileText& profile,
                                                    const supervisor::Adjustments& adjustments,
                                                    const facts::CapabilitySnapshot* elsewhere)
{
    Json body{{"profile", to_json(profile)}};
    put_adjustments(body, adjustments);
    if (elsewhere != nullptr) body["snapshot"] = facts::to_json(*elsewhere);
    return plan_body(body);
}

Result<supervisor::PlanOutcome> RemoteService::plan_again(std::string_view plan_file)
{
    const Json plan = TRY_WITH(canon::parse(plan_file, {.bytes = kMostPlanBytes, .depth = 64}),
                               "plan file");
    return plan_body({{"plan", plan}});
}

// The plan travels and is resolved again over there: a digest proves identity, not permission.
Result<Json> RemoteService::run_body(const supervisor::RunRequest& request)
{
    const auto* plan = std::get_if<plan::ExecutionPlan>(&request.resolved);
    if (plan == nullptr) {
        if (!refused_.empty()) {
            static_cast<void>(client_.request("POST", "/v1/sandboxes", refused_));
        }
        return fail(Code::denied, "nothing to run: the profile was refused");
    }
    const std::string file = TRY(plan::encode_file(*plan));
    Json body{{"plan", TRY(canon::parse(file, {.bytes = kMostPlanBytes, .depth = 64}))},
              {"name", request.name},
              {"remove_on_exit", request.keep == supervisor::Keep::remove_on_exit}};
    return body;
}

Result<supervisor::RunResult> RemoteService::run(const supervisor::RunRequest& request)
{
    Json body = TRY(run_body(request));
    const auto result = [&]() -> Result<Json> {
        if (request.attach == supervisor::Attach::detached) {
            return ask("run", "POST", "/v1/sandboxes", compact(body));
        }
        const bool input = request.stdin_mode == supervisor::Stdin::open;
        supervisor::Console console = request.console;
        if (input && console.in < 0) console.in = 0;
        put_console(body, console, input);
        return stream("run", "/v1/sandboxes", body, console, input);
    }();
    if (!result) return fail(result.error());
    if (has(*result, "denials")) {
        return fail(Code::denied, resolve::render(TRY(denials_from_json(*result))));
    }
    return run_result_from_json(*result);
}

Result<supervisor::RunResult> RemoteService::create(const supervisor::RunRequest& request)
{
    Json body = TRY(run_body(request));
    body["start"] = false;
    return run_result_from_json(TRY(ask("run", "POST", "/v1/sandboxes", compact(body))));
}

Result<supervisor::RunResult> RemoteService::start(std::string_view reference,
                                                   supervisor::Attach attach,
                                                   const supervisor::Console& console)
{
    const std::string target = at(reference, "/start");
    if (attach == supervisor::Attach::detached) {
        return run_result_from_json(TRY(ask("start", "POST", target, "{}")));
    }
    Json body = Json::object();
    const bool input = console.in >= 0;
    put_console(body, console, input);
    return run_result_from_json(TRY(stream("start", target, body, console, input)));
}

Status RemoteService::restart(std::string_view reference, std::optional<Millis> timeout)
{
    return act("restart", reference, "restart" + timeout_query(timeout));
}
Status RemoteService::pause(std::string_view reference) { return act("pause", reference, "pause"); }
Status RemoteService::resume(std::string_view reference)
{
    return act("resume", reference, "resume");
}
Status RemoteService::touch(std::string_view reference) { return act("touch", reference, "touch"); }
Status RemoteService::stop(std::string_view reference, std::optional<Millis> timeout)
{
    return act("stop", reference, "stop" + timeout_query(timeout));
}
Status RemoteService::kill(std::string_view reference, int signal)
{
    return act("kill", reference, "kill?signal=" + std::to_string(signal));
}
Status RemoteService::signal_session(std::string_view reference, std::string_view session,
                                     int signal)
{
    return act("signal-session", reference,
               "sessions/" + percent_encode(session) + "/signal?signal=" + std::to_string(signal));
}

Status RemoteService::remove(std::string_view reference, Force force)
{
    TRY(ask("remove", "DELETE", at(reference, force == Force::yes ? "?force=1" : "")));
    return {};
}

Result<supervisor::Stats> RemoteService::stats(std::string_view reference)
{
    return stats_from_json(TRY(ask("stats", "GET", at(reference, "/stats"))));
}

Result<supervisor::SessionResult> RemoteService::exec(const supervisor::ExecRequest& request)
{
    const std::string target = at(request.reference, "/exec");
    Json body = to_json(request);
    if (request.attach == supervisor::Attach::detached) {
        return session_result_from_json(TRY(ask("exec", "POST", target, compact(body))));
    }
    const bool input = request.console.in >= 0;
    put_console(body, request.console, input);
    return session_result_from_json(TRY(stream("exec", target, body, request.console, input)));
}

Result<supervisor::SessionResult> RemoteService::attach(const supervisor::AttachRequest& request)
{
    Json body = to_json(request);
    const bool input = request.console.in >= 0;
    put_console(body, request.console, input);
    return session_result_from_json(
        TRY(stream("attach", at(request.reference, "/attach"), body, request.console, input)));
}

Result<std::vector<supervisor::SessionInfo>> RemoteService::sessions(std::string_view reference)
{
    const Json json = TRY(ask("sessions", "GET", at(reference, "/sessions")));
    std::vector<supervisor::SessionInfo> list;
    for (const Json& item : json) list.push_back(TRY(session_info_from_json(item)));
    return list;
}

Result<supervisor::CopyResult> RemoteService::copy(const supervisor::CopyRequest& request)
{
    const bool into = request.way == supervisor::CopyRequest::Way::into;
    supervisor::Console console;
    (into ? console.in : console.out) = request.stream;
    // The archive is for a file or a program, even where that is a terminal.
    console.terminal = true;
    return copy_result_from_json(
        TRY(stream("copy", at(request.reference, "/copy"), to_json(request), console, into)));
}

Result<supervisor::ApplyResult> RemoteService::apply(const supervisor::ApplyRequest& request)
{
    const Json body = TRY(to_json(request));
    return apply_result_from_json(TRY(ask("apply", "POST", "/v1/apply", compact(body))));
}

Result<std::vector<supervisor::Listed>> RemoteService::list(bool all)
{
    const Json json = TRY(
        ask("list", "GET", std::string("/v1/sandboxes?detail=1") + (all ? "&all=1" : "")));
    std::vector<supervisor::Listed> list;
    for (const Json& item : json) list.push_back(TRY(listed_from_json(item)));
    return list;
}

Result<Json> RemoteService::inspect(std::string_view reference)
{
    return ask("inspect", "GET", at(reference));
}

Result<plan::ExecutionPlan> RemoteService::plan_of(std::string_view reference)
{
    TRY_VOID(require("plan-of"));
    const auto answer = TRY(client_.request("GET", at(reference, "/plan")));
    if (answer.status != 200) {
        TRY(answer_or_error(TRY(parse_answer(answer))));
        return fail(Code::internal, "the daemon gave no plan");
    }
    return plan::decode_file(answer.body);
}

namespace {

// A failure behind the first line is a line of its own.
std::optional<Error> failure_in(std::string_view line)
{
    if (!line.starts_with("{\"error\":")) return std::nullopt;
    const auto json = canon::parse(line);
    return json ? error_from_json(*json) : json.error();
}

}  // namespace

Status RemoteService::logs(const supervisor::LogQuery& query, const supervisor::LogSink& sink)
{
    TRY_VOID(require("logs"));
    std::optional<Error> failure;
    const auto answer = TRY(client_.lines(
        at(query.reference, query.follow ? "/logs?follow=1" : "/logs"), [&](std::string_view line) {
            failure = failure_in(line);
            return !failure && sink(line);
        }));
    if (failure) return fail(std::move(*failure));
    if (answer.status == 200) return {};
    TRY(answer_or_error(TRY(parse_answer(answer))));
    return fail(Code::internal, "the daemon gave no logs");
}

Status RemoteService::events(const supervisor::EventQuery& query, const supervisor::EventSink& sink)
{
    TRY_VOID(require("events"));
    std::string target = "/v1/events?after=" + std::to_string(query.after);
    if (!query.since.empty()) target += "&since=" + percent_encode(query.since);
    if (query.follow) target += "&follow=1";
    if (!query.reference.empty()) target += "&ref=" + percent_encode(query.reference);
    std::optional<Error> failure;
    const auto answer = TRY(client_.lines(target, [&](std::string_view line) {
        failure = failure_in(line);
        if (failure) return false;
        auto json = canon::parse(line);
        if (!json) failure = json.error();
        return json && sink(*json);
    }));
    if (failure) return fail(std::move(*failure));
    if (answer.status == 200) return {};
    TRY(answer_or_error(TRY(parse_answer(answer))));
    return fail(Code::internal, "the daemon gave no events");
}

Result<ledger::Exit> RemoteService::wait(std::string_view reference)
{
    const Json json = TRY(ask("wait", "GET", at(reference, "/wait")));
    const auto exit = TRY(exit_from_json(&json));
    if (!exit) return fail(Code::internal, "the daemon gave no exit status");
    return *exit;
}

Result<supervisor::Report> RemoteService::reconcile()
{
    return report_from_json(TRY(ask("reconcile", "POST", "/v1/reconcile")));
}

Result<std::optional<audit::Broken>> RemoteService::verify_audit(audit::Head& head)
{
    Verdict verdict = TRY(verdict_from_json(TRY(ask("verify-audit", "GET", "/v1/audit/verify"))));
    head = verdict.head;
    return std::move(verdict.broken);
}

}  // namespace sandbox::control
