// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "control/calls.hpp"

namespace sandbox::control {

namespace {

constexpr auto kQuick = Duration::quick;
constexpr auto kLong = Duration::long_lasting;

// The whole API in one place; docs/openapi.yaml is compared with it by a test. Order does not
// matter: no two patterns fit one path.
const std::vector<Route>& table()
{
    using Op = Operation;
    static const std::vector<Route> kRoutes{
        {"GET", "/v1/version", Op::version, Upgrade::never, kQuick, 0, {}},
        {"GET", "/metrics", Op::metrics, Upgrade::never, kQuick, 0, {}},
        {"POST", "/v1/plan", Op::plan, Upgrade::never, kQuick, kMostPlanBytes, {}},
        {"GET", "/v1/sandboxes", Op::list, Upgrade::never, kQuick, 0, {"all", "detail"}},
        {"POST", "/v1/sandboxes", Op::run, Upgrade::may, kQuick, kMostPlanBytes, {}},
        {"GET", "/v1/sandboxes/{ref}", Op::inspect, Upgrade::never, kQuick, 0, {}},
        {"DELETE", "/v1/sandboxes/{ref}", Op::remove, Upgrade::never, kQuick, 0, {"force"}},
        {"GET", "/v1/sandboxes/{ref}/plan", Op::plan_of, Upgrade::never, kQuick, 0, {}},
        {"POST", "/v1/sandboxes/{ref}/start", Op::start, Upgrade::may, kQuick, kMostBodyBytes, {}},
        {"POST", "/v1/sandboxes/{ref}/stop", Op::stop, Upgrade::never, kLong, 0, {"timeout"}},
        {"POST", "/v1/sandboxes/{ref}/kill", Op::kill, Upgrade::never, kQuick, 0, {"signal"}},
        {"POST", "/v1/sandboxes/{ref}/restart", Op::restart, Upgrade::never, kLong, 0, {"timeout"}},
        {"POST", "/v1/sandboxes/{ref}/pause", Op::pause, Upgrade::never, kQuick, 0, {}},
        {"POST", "/v1/sandboxes/{ref}/resume", Op::resume, Upgrade::never, kQuick, 0, {}},
        {"POST", "/v1/sandboxes/{ref}/touch", Op::touch, Upgrade::never, kQuick, 0, {}},
        {"GET", "/v1/sandboxes/{ref}/wait", Op::wait, Upgrade::never, kLong, 0, {}},
        {"GET", "/v1/sandboxes/{ref}/stats", Op::stats, Upgrade::never, kQuick, 0, {}},
        {"GET", "/v1/sandboxes/{ref}/logs", Op::logs, Upgrade::never, kLong, 0, {"follow"}},
        {"POST", "/v1/sandboxes/{ref}/exec", Op::exec, Upgrade::may, kQuick, kMostBodyBytes, {}},
        {"POST",
         "/v1/sandboxes/{ref}/attach",
         Op::attach,
         Upgrade::must,
         kLong,
         kMostBodyBytes,
         {}},
        {"POST", "/v1/sandboxes/{ref}/copy", Op::copy, Upgrade::must, kLong, kMostBodyBytes, {}},
        {"GET", "/v1/sandboxes/{ref}/sessions", Op::sessions, Upgrade::never, kQuick, 0, {}},
        {"POST",
         "/v1/sandboxes/{ref}/sessions/{session}/signal",
         Op::signal_session,
         Upgrade::never,
         kQuick,
         0,
         {"signal"}},
        {"GET",
         "/v1/events",
         Op::events,
         Upgrade::never,
         kLong,
         0,
         {"follow", "after", "since", "ref"}},
        {"POST", "/v1/apply", Op::apply, Upgrade::never, kLong, kMostPlanBytes, {}},
        {"POST", "/v1/reconcile", Op::reconcile, Upgrade::never, kQuick, 0, {}},
        {"GET", "/v1/audit/verify", Op::verify_audit, Upgrade::never, kQuick, 0, {}},
    };
    return kRoutes;
}

// An empty first one, before the leading slash: patterns have it, too.
std::vector<std::string_view> segments_of(std::string_view path)
{
    std::vector<std::string_view> segments;
    for (std::size_t slash = path.find('/'); slash != std::string_view::npos;
         slash = path.find('/')) {
        segments.push_back(path.substr(0, slash));
        path.remove_prefix(slash + 1);
    }
    segments.push_back(path);
    return segments;
}

bool matches(std::string_view pattern, std::string_view path)
{
    // Segments are compared before they are decoded: an escaped slash in a reference stays part of
    // it.
    const auto wanted = segments_of(pattern);
    const auto found = segments_of(path);
    return std::ranges::equal(wanted, found, [](std::string_view want, std::string_view have) {
        // An empty reference is the service's to refuse, as any other that names nobody.
        return want.starts_with('{') || want == have;
    });
}

}  // namespace

std::span<const Route> routes() { return table(); }

std::string_view to_string(Operation operation) noexcept
{
    // Names of docs/api.md and of the capabilities in /v1/version: not to be changed.
    switch (operation) {
    case Operation::version: return "version";
    case Operation::metrics: return "metrics";
    case Operation::list: return "list";
    case Operation::inspect: return "inspect";
    case Operation::plan_of: return "plan-of";
    case Operation::plan: return "plan";
    case Operation::run: return "run";
    case Operation::start: return "start";
    case Operation::stop: return "stop";
    case Operation::kill: return "kill";
    case Operation::restart: return "restart";
    case Operation::pause: return "pause";
    case Operation::resume: return "resume";
    case Operation::touch: return "touch";
    case Operation::remove: return "remove";
    case Operation::wait: return "wait";
    case Operation::stats: return "stats";
    case Operation::logs: return "logs";
    case Operation::events: return "events";
    case Operation::exec: return "exec";
    case Operation::attach: return "attach";
    case Operation::sessions: return "sessions";
    case Operation::signal_session: return "signal-session";
    case Operation::copy: return "copy";
    case Operation::apply: return "apply";
    case Operation::reconcile: return "reconcile";
    case Operation::verify_audit: return "verify-audit";
    }
    return "";
}

std::expected<const Route*, CallFault> find_route(const HttpRequest& request)
{
    // 405 tells a client that the path is right, RFC 9110, 15.5.6.
    bool path_known = false;
    // 27 patterns: a search costs less than the fork behind it.
    for (const Route& route : table()) {
        if (!matches(route.pattern, request.path)) continue;
        path_known = true;
        if (route.method == request.method) return &route;
    }
    if (path_known) {
        return std::unexpected(CallFault{
            405, Error(Code::invalid_argument, request.method + " is not for this path")});
    }
    return std::unexpected(CallFault{
        404, Error(Code::not_found, "no such path: see docs/api.md for those there are")});
}

// RFC 9110, 15.5 and 15.6; 422 and 429 as APIs of this kind use them (docs/api.md, Errors).
int status_of(Code code) noexcept
{
    switch (code) {
    case Code::invalid_argument: return 400;
    case Code::permission_denied: return 403;
    case Code::not_found: return 404;
    case Code::already_exists:
    case Code::conflict:
    case Code::foreign: return 409;
    case Code::denied: return 422;
    case Code::resource_exhausted: return 429;
    case Code::unavailable: return 503;
    case Code::deadline_exceeded: return 504;
    // Our side's fault: nothing the client could do differently.
    case Code::corrupt:
    case Code::io:
    case Code::internal: break;
    }
    return 500;
}

CallFault fault_of(Error error)
{
    const int status = status_of(error.code());
    return {status, std::move(error)};
}

}  // namespace sandbox::control
