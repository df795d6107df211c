// SPDX-License-Identifier: Apache-2.0
#include "control/remote.hpp"

#include "canon/json.hpp"
#include "control/codec.hpp"
#include "control/fields.hpp"

namespace sandbox::control {

using canon::Json;

namespace {

// The embedded service is there for a daemon that hangs; two seconds are what a person waits.
constexpr Millis kGreeting{2'000};  // one that takes longer is not to be waited for by every verb
constexpr canon::Limits kMostAnswer{.bytes = kMostResultBytes, .depth = 64};

// Escaped whatever it is: a reference is typed by a person.
std::string at(std::string_view reference, std::string_view rest = {})
{
    return "/v1/sandboxes/" + percent_encode(reference) + std::string(rest);
}

std::string compact(const Json& json)
{
    // "replace": paths and arguments may be no UTF-8; the daemon refuses then, in words.
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string timeout_query(std::optional<Millis> timeout)
{
    return timeout ? "?timeout=" + format_duration(*timeout) : "";
}

bool has(const Json& json, const char* key) { return json.is_object() && json.contains(key); }

// Whatever the status: a failure is an object as well.
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
    // Before the first call: a daemon of another generation is found out while there is still
    // another way.
    TRY_VOID(service->greet());
    return service;
}

Status RemoteService::greet()
{
    const auto answer = TRY(
        client_.request("GET", "/v1/version", {}, sys::Deadline::after(kGreeting)));
    // Also an error here is told as it is: a daemon that refuses our user says why.
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
    // A newer client with an older daemon: the path may be missing, or mean less.
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
    // The answer of an act is {}: that there was one is all.
    TRY(ask(capability, "POST", at(reference, "/" + verb)));
    return {};
}

Result<Json> RemoteService::stream(const char* capability, const std::string& target,
                                   const Json& body, const supervisor::Console& console, bool input)
{
    // Before anything is sent: a stream cannot be taken back.
    TRY_VOID(require(capability));
    const auto answer = TRY(client_.stream(target, compact(body), console, input));
    return answer_or_error(TRY(parse_answer(answer)));
}

Result<supervisor::PlanOutcome> RemoteService::plan_body(const Json& body)
{
    // Kept: a refusal is sent again by run_body(), byte for byte.
    const std::string text = compact(body);
    TRY_VOID(require("plan"));
    const auto answer = TRY(client_.request("POST", "/v1/plan", text));
    const Json json = TRY(answer_or_error(TRY(parse_answer(answer))));
    // Only a plan that was refused just now may be recorded as such.
    refused_.clear();
    if (has(json, "denials")) {
        refused_ = text;
        return supervisor::PlanOutcome(TRY(denials_from_json(json)));
    }
    if (has(json, "diagnostics")) {
        return supervisor::PlanOutcome(supervisor::ProfileErrors{TRY(diagnostics_from_json(json))});
    }
    // The bytes as they came: the digest is over them, and decode_file() checks it.
    return supervisor::PlanOutcome(TRY_WITH(plan::decode_file(answer.body), "plan of the daemon"));
}

Result<supervisor::PlanOutcome> RemoteService::plan(const supervisor::ProfileText& profile,
                                                    const supervisor::Adjustments& adjustments,
                                                    const facts::CapabilitySnapshot* elsewhere)
{
    // Its text travels, not its path: the daemon opens no file of the caller's.
    Json body{{"profile", to_json(profile)}};
    put_adjustments(body, adjustments);
    if (elsewhere != nullptr) body["snapshot"] = facts::to_json(*elsewhere);
    return plan_body(body);
}

Result<supervisor::PlanOutcome> RemoteService::plan_again(std::string_view plan_file)
{
    const Json plan = TRY_WITH(canon::parse(plan_file, {.bytes = kMostPlanBytes, .depth = 64}),
                               "plan file");
    // Parsed here, so that a broken file is told before the daemon is asked.
    return plan_body({{"plan", plan}});
}

// The plan travels and is resolved again over there: a digest proves identity, not permission.
Result<Json> RemoteService::run_body(const supervisor::RunRequest& request)
{
    const auto* plan = std::get_if<plan::ExecutionPlan>(&request.resolved);
    if (plan == nullptr) {
        if (!refused_.empty()) {
            // The answer is known already; the daemon only writes its audit line.
            static_cast<void>(client_.request("POST", "/v1/sandboxes", refused_));
        }
        return fail(Code::denied, "nothing to run: the profile was refused");
    }
    // The canonical file, whose digest the daemon checks.
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
        // The daemon's end gets a pipe only if the client will send.
        const bool input = request.stdin_mode == supervisor::Stdin::open;
        supervisor::Console console = request.console;
        // The caller says "open" and names none: its own standard input.
        if (input && console.in < 0) console.in = 0;
        put_console(body, console, input);
        return stream("run", "/v1/sandboxes", body, console, input);
    }();
    if (!result) return fail(result.error());
    // Resolved anew, and refused there: its policy or host is another one.
    if (has(*result, "denials")) {
        return fail(Code::denied, resolve::render(TRY(denials_from_json(*result))));
    }
    return run_result_from_json(*result);
}

Result<supervisor::RunResult> RemoteService::create(const supervisor::RunRequest& request)
{
    Json body = TRY(run_body(request));
    // The same call as run, without a start.
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
    // A flag in the query: DELETE has no body that proxies would keep.
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
    // Anything but a list has no items of the right form and fails in the first.
    const Json json = TRY(ask("sessions", "GET", at(reference, "/sessions")));
    std::vector<supervisor::SessionInfo> list;
    for (const Json& item : json) list.push_back(TRY(session_info_from_json(item)));
    return list;
}

Result<supervisor::CopyResult> RemoteService::copy(const supervisor::CopyRequest& request)
{
    const bool into = request.way == supervisor::CopyRequest::Way::into;
    supervisor::Console console;
    // Borrowed from the request; the other two stay closed.
    (into ? console.in : console.out) = request.stream;
    // Its bytes must pass unchanged, also where they go to a terminal: "terminal" is what turns the
    // pump's escaping off.
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
    // Ours shows more than the contract has.
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
    // Not through ask(): the body is a file whose bytes count.
    if (answer.status != 200) {
        TRY(answer_or_error(TRY(parse_answer(answer))));
        return fail(Code::internal, "the daemon gave no plan");
    }
    return plan::decode_file(answer.body);
}

namespace {

// A failure behind the first line is a line of its own: the status has been sent by then.
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
    // Without a deadline: --follow ends when the sandbox does, or the caller.
    const auto answer = TRY(client_.lines(
        at(query.reference, query.follow ? "/logs?follow=1" : "/logs"), [&](std::string_view line) {
            failure = failure_in(line);
            // False ends the connection.
            return !failure && sink(line);
        }));
    if (failure) return fail(std::move(*failure));
    // A body of another status was kept: it is the failure.
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
    // A long call: it is answered when the sandbox has ended.
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
