// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "canon/json.hpp"
#include "ctl/output.hpp"
#include "ctl/request.hpp"
#include "ctl/service.hpp"
#include "ctl/terminal.hpp"
#include "ctl/verbs.hpp"

namespace sandbox::ctl {

namespace {

using supervisor::SessionInfo;
using supervisor::SessionResult;

// "1000" or "1000:1000". Only compared with the plan's user: a session cannot have another one.
Result<profile::User> parse_user(const std::string& text)
{
    const auto number = [&](std::string_view word) -> Result<std::uint32_t> {
        std::uint32_t value = 0;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
        if (word.empty() || error != std::errc{} || end != word.data() + word.size())
            return fail(Code::invalid_argument, "-u wants UID or UID:GID, found '" + text + "'");
        return value;
    };
    const std::size_t colon = std::min(text.find(':'), text.size());
    profile::User user;
    user.uid = TRY(number(std::string_view(text).substr(0, colon)));
    user.gid = colon == text.size() ? user.uid : TRY(number(text.substr(colon + 1)));
    return user;
}

Result<supervisor::ExecRequest> exec_request(const Exec& verb)
{
    supervisor::ExecRequest request;
    request.reference = verb.name;
    request.argv = verb.argv;
    // Unchecked beyond the '=': the service checks names and sizes for everybody.
    for (const std::string& pair : verb.env) {
        const std::size_t equals = pair.find('=');
        if (equals == std::string::npos || equals == 0)
            return fail(Code::invalid_argument, "-e wants NAME=VALUE, found '" + pair + "'");
        request.env[pair.substr(0, equals)] = pair.substr(equals + 1);
    }
    if (!verb.user.empty()) request.user = TRY(parse_user(verb.user));
    // Inside; whether it exists is known there only.
    request.cwd = verb.workdir;
    if (!verb.timeout.empty()) {
        const auto timeout = parse_duration(verb.timeout);
        if (!timeout)
            return fail(Code::invalid_argument,
                        "--timeout wants a duration such as 30s, found '" + verb.timeout + "'");
        request.timeout = *timeout;
    }
    request.attach = verb.detach ? supervisor::Attach::detached : supervisor::Attach::foreground;
    request.terminal = verb.terminal;
    request.expect_plan = verb.expect_plan;
    return request;
}

// Of the exit status alone a person could not tell.
void say_end(const SessionResult& result)
{
    if (!result.why.empty()) say("sandboxctl: " + escaped(result.why));
    if (!result.exit) return;
    if (result.exit->reason == ledger::ExitReason::timeout) say("sandboxctl: timed out");
    if (result.exit->reason == ledger::ExitReason::oom)
        say("sandboxctl: killed: out of memory (limit.memory)");
}

// A session that has ended stays listed until its sandbox ends.
std::string state_of(const SessionInfo& info)
{
    if (!info.exit) return info.attached ? "attached" : "detached";
    return "exited " + std::to_string(info.exit->code);
}

canon::Json session_json(const SessionInfo& info)
{
    canon::Json object{{"session", info.session},
                       {"argv", info.argv},
                       {"terminal", info.terminal},
                       {"running", info.running},
                       {"attached", info.attached},
                       {"pid", info.pid},
                       {"started", info.started},
                       {"out_offset", info.out_offset},
                       {"exit", nullptr}};
    if (info.exit) {
        object["exit"] = {{"code", info.exit->code},
                          {"signal", info.exit->signal},
                          {"reason", std::string(ledger::to_string(info.exit->reason))},
                          {"oom_kills", info.exit->oom_kills}};
    }
    return object;
}

}  // namespace

int execute(const Context& context, const Exec& verb)
{
    auto request = exec_request(verb);
    if (!request) return complain(request.error()), kOurFailure;
    supervisor::Console& console = request->console;
    // A detached session gets /dev/null and its log, nothing of ours.
    if (!verb.detach) {
        console.in = verb.interactive ? open_or_none(STDIN_FILENO) : -1;
        console.out = open_or_none(STDOUT_FILENO);
        console.err = open_or_none(STDERR_FILENO);
    }
    if (verb.terminal)
        if (auto joined = join_terminal(console, verb.detach_keys); !joined)
            return complain(joined.error()), kOurFailure;
    // Before the service is opened: from here on signals are for the session.
    SignalSteering steering;
    // A detached one may have a terminal of its own, which ours has nothing to do with.
    const bool on_terminal = verb.terminal && !verb.detach;
    const auto mode = on_terminal ? SignalSteering::Mode::terminal : SignalSteering::Mode::pipes;
    if (auto begun = steering.begin(mode, STDIN_FILENO); !begun)
        return complain(begun.error()), kOurFailure;
    console.steering = &steering;
    auto service = open_service(context, supervisor::Need::ledger);
    if (!service) return complain(service.error()), kOurFailure;
    // After everything that may complain.
    std::optional<RawTerminal> raw;
    if (on_terminal && console.terminal) {
        auto entered = RawTerminal::enter(STDIN_FILENO);
        if (!entered) return complain(entered.error()), kOurFailure;
        raw.emplace(std::move(*entered));
        steering.raw(&*raw);
    }
    const auto result = (*service)->exec(*request);
    raw.reset();
    if (!result) return complain(result.error()), kOurFailure;
    leave_open(std::move(*service));
    // The session's name is all there is to say; scripts attach to it.
    if (verb.detach && result->why.empty()) {
        print(result->session + "\n");
        return 0;
    }
    if (!result->exit)
        return say_left(result->session, verb.name, result->exit_status, steering.left_by());
    say_end(*result);
    return result->exit_status;
}

int execute(const Context& context, const Attach& verb)
{
    supervisor::AttachRequest request;
    request.reference = verb.name;
    request.session = verb.session;
    // Nothing: where the last client left it.
    request.out_offset = verb.from;
    request.err_offset = verb.from_stderr;
    supervisor::Console& console = request.console;
    console.in = verb.no_stdin ? -1 : open_or_none(STDIN_FILENO);
    console.out = open_or_none(STDOUT_FILENO);
    console.err = open_or_none(STDERR_FILENO);
    if (auto joined = join_terminal(console, verb.detach_keys); !joined)
        return complain(joined.error()), kOurFailure;
    auto service = open_service(context, supervisor::Need::ledger);
    if (!service) return complain(service.error()), kOurFailure;
    // Whether it has a terminal decides what our keys and signals mean.
    bool has_terminal = false;
    // The main process may be asked of the plan, which also a sandbox without sessions has.
    if (request.session.empty() || request.session == "s1") {
        const auto plan = (*service)->plan_of(verb.name);
        if (!plan) return complain(plan.error()), kOurFailure;
        has_terminal = (*plan)->process.terminal;
    } else {
        const auto sessions = (*service)->sessions(verb.name);
        if (!sessions) return complain(sessions.error()), kOurFailure;
        const auto found = std::ranges::find(*sessions, request.session, &SessionInfo::session);
        has_terminal = found != sessions->end() && found->terminal;
    }
    // Only looking: an attached client does not own the process, so its signals end the look and
    // nothing else.
    SignalSteering steering;
    const auto mode = has_terminal ? SignalSteering::Mode::terminal : SignalSteering::Mode::looking;
    if (auto begun = steering.begin(mode, STDIN_FILENO); !begun)
        return complain(begun.error()), kOurFailure;
    console.steering = &steering;
    // As in exec: last, and gone before anything is said.
    std::optional<RawTerminal> raw;
    if (has_terminal && console.terminal) {
        auto entered = RawTerminal::enter(STDIN_FILENO);
        if (!entered) return complain(entered.error()), kOurFailure;
        raw.emplace(std::move(*entered));
        steering.raw(&*raw);
    }
    const auto result = (*service)->attach(request);
    raw.reset();
    if (!result) return complain(result.error()), kOurFailure;
    if (!result->exit)
        return say_left(result->session, verb.name, result->exit_status, steering.left_by());
    say_end(*result);
    return result->exit_status;
}

int execute(const Context& context, const Sessions& verb)
{
    auto service = open_service(context, supervisor::Need::ledger);
    if (!service) return complain(service.error()), kFailed;
    const auto sessions = (*service)->sessions(verb.name);
    if (!sessions) return complain(sessions.error()), kFailed;
    const Format format = context.format.value_or(Format::table);
    if (format != Format::table) {
        canon::Json list = canon::Json::array();
        for (const SessionInfo& info : *sessions) list.push_back(session_json(info));
        print(list, format);
        return 0;
    }
    std::vector<std::vector<std::string>> rows{
        {"SESSION", "STATE", "TTY", "PID", "STARTED", "COMMAND"}};
    for (const SessionInfo& info : *sessions) {
        // Words are joined for people; -o json has them apart.
        std::string command;
        for (const std::string& word : info.argv) command += (command.empty() ? "" : " ") + word;
        rows.push_back({info.session, state_of(info), info.terminal ? "yes" : "no",
                        info.pid == 0 ? "-" : std::to_string(info.pid), info.started, command});
    }
    print(table(rows));
    return 0;
}

}  // namespace sandbox::ctl
