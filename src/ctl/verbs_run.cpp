// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "ctl/output.hpp"
#include "ctl/request.hpp"
#include "ctl/service.hpp"
#include "ctl/terminal.hpp"
#include "ctl/verbs.hpp"
#include "profile/check.hpp"
#include "sys/file.hpp"

namespace sandbox::ctl {

namespace {

constexpr std::size_t kMostPlanBytes = 16U << 20;

Result<supervisor::PlanOutcome> resolve_run(supervisor::SandboxService& service,
                                            const supervisor::Paths& paths, const Run& verb)
{
    if (!verb.plan.empty()) {
        return service.plan_again(TRY_WITH(sys::read_file(verb.plan, kMostPlanBytes), "plan file"));
    }
    // Read before the service is asked: stdin is here.
    const auto text = TRY(supervisor::read_profile(paths, verb.profile));
    auto extra = TRY(adjustments(paths, verb.argv, verb.env, verb.overlay));
    // -t adds a terminal; its absence takes none away that the profile has.
    if (verb.terminal) extra.terminal = true;
    return service.plan(text, extra, nullptr);
}

void say_result(const supervisor::RunResult& result, const Run& verb)
{
    // A detached sandbox has no status to show, so a reason is all there is.
    if (verb.detach && !result.why.empty()) return say("sandboxctl: " + escaped(result.why));
    if (verb.detach) return print(result.name.str() + "\n");
    if (!result.why.empty()) say("sandboxctl: " + escaped(result.why));
    if (!result.exit) return;
    if (result.exit->reason == ledger::ExitReason::timeout) say("sandboxctl: timed out");
    if (result.exit->reason == ledger::ExitReason::oom) {
        say("sandboxctl: killed: out of memory (limit.memory)");
    }
}

int run_on_terminal(supervisor::SandboxService& service, supervisor::RunRequest& request,
                    const Run& verb)
{
    supervisor::Console& console = request.console;
    console.in = verb.interactive ? open_or_none(STDIN_FILENO) : -1;
    console.out = open_or_none(STDOUT_FILENO);
    console.err = open_or_none(STDERR_FILENO);
    // Before the launch: a typo in --detach-keys must not leave a sandbox behind.
    if (auto joined = join_terminal(console, verb.detach_keys); !joined)
        return complain(joined.error()), kOurFailure;
    SignalSteering steering;
    if (auto begun = steering.begin(SignalSteering::Mode::terminal, STDIN_FILENO); !begun)
        return complain(begun.error()), kOurFailure;
    console.steering = &steering;
    // After everything that may fail and complain: on a raw terminal lines would stagger.
    std::optional<RawTerminal> raw;
    if (console.terminal) {
        auto entered = RawTerminal::enter(STDIN_FILENO);
        if (!entered) return complain(entered.error()), kOurFailure;
        raw.emplace(std::move(*entered));
        steering.raw(&*raw);
    }
    const auto result = service.run(request);
    // Before anything is said, for the same reason.
    raw.reset();
    if (!result) return complain(result.error()), kOurFailure;
    // It runs on: we left it.
    if (!result->exit && result->why.empty())
        return say_left({}, result->name.str(), result->exit_status, steering.left_by());
    say_result(*result, verb);
    return result->exit_status;
}

}  // namespace

int execute(const Context& context, const Run& verb)
{
    const auto paths = supervisor::find_paths(context.root);
    // Before anything is probed or launched.
    if (!verb.name.empty()) {
        if (const auto flaw = profile::flaw_in_label(verb.name)) {
            return say("sandboxctl: --name " + escaped(verb.name) + " " + flaw->message),
                   kOurFailure;
        }
    }
    // Need::launch: a shim is started early, while profile and policy are still being read.
    auto service = open_service(context, supervisor::Need::launch);
    if (!service) return complain(service.error()), kOurFailure;
    auto outcome = resolve_run(**service, paths, verb);
    if (!outcome) return complain(outcome.error()), kOurFailure;

    supervisor::RunRequest request(std::move(*outcome));
    request.name = verb.name;
    request.attach = verb.detach ? supervisor::Attach::detached : supervisor::Attach::foreground;
    request.keep = verb.remove ? supervisor::Keep::remove_on_exit : supervisor::Keep::until_removed;
    request.stdin_mode = verb.interactive ? supervisor::Stdin::open : supervisor::Stdin::closed;
    const auto* plan = std::get_if<plan::ExecutionPlan>(&request.resolved);
    if (plan == nullptr) {
        say_refused(request.resolved, context.format == Format::json, kOurFailure);
        // Errors of the file are no denial: they never reached the policy.
        if (std::holds_alternative<std::vector<resolve::Denial>>(request.resolved)) {
            request.name = verb.profile;
            // Recording the denial is for the audit; the answer is the same without it.
            static_cast<void>((*service)->run(request));
        }
        return kOurFailure;
    }
    for (const std::string& warning : (*plan)->warnings)
        say("sandboxctl: warning: " + escaped(warning));
    // Also where the plan, not the option, says so.
    if ((*plan)->process.terminal && !verb.detach) return run_on_terminal(**service, request, verb);
    const auto result = (*service)->run(request);
    if (!result) return complain(result.error()), kOurFailure;
    leave_open(std::move(*service));
    say_result(*result, verb);
    return result->exit_status;
}

int execute(const Context& context, const Stop& verb)
{
    const auto paths = supervisor::find_paths(context.root);
    // Nothing: the plan's own.
    std::optional<Millis> timeout;
    if (!verb.time.empty()) {
        timeout = parse_timeout(verb.time);
        if (!timeout)
            return say("sandboxctl: -t wants seconds or a duration such as 500ms, found '" +
                       escaped(verb.time) + "'"),
                   2;
    }
    auto service = open_service(context, supervisor::Need::ledger);
    if (!service) return complain(service.error()), kFailed;
    int status = 0;
    for (const std::string& name : verb.names) {
        if (auto stopped = (*service)->stop(name, timeout); !stopped) {
            complain(stopped.error());
            status = kFailed;
        }
    }
    return status;
}

int execute(const Context& context, const Kill& verb)
{
    // Before the service: a typo is wrong usage.
    const auto signal = parse_signal(verb.signal);
    if (!signal) return complain(signal.error()), 2;
    auto service = open_service(context, supervisor::Need::ledger);
    if (!service) return complain(service.error()), kFailed;
    int status = 0;
    for (const std::string& name : verb.names) {
        const Status killed = verb.session.empty()
                                  ? (*service)->kill(name, *signal)
                                  : (*service)->signal_session(name, verb.session, *signal);
        if (!killed) {
            complain(killed.error());
            status = kFailed;
        }
    }
    return status;
}

int execute(const Context& context, const Wait& verb)
{
    auto service = open_service(context, supervisor::Need::ledger);
    if (!service) return complain(service.error()), kFailed;
    int status = 0;
    for (const std::string& name : verb.names) {
        const auto exit = (*service)->wait(name);
        if (exit) {
            // One number a line, in the order of the names.
            print(std::to_string(exit->code) + "\n");
        } else {
            complain(exit.error());
            status = kFailed;
        }
    }
    return status;
}

int execute(const Context& context, const Remove& verb)
{
    auto service = open_service(context, supervisor::Need::ledger);
    if (!service) return complain(service.error()), kFailed;
    using Force = supervisor::SandboxService::Force;
    int status = 0;
    for (const std::string& name : verb.names) {
        // Logs stay readable; --force ends what runs.
        auto removed = (*service)->remove(name, verb.force ? Force::yes : Force::no);
        if (!removed) {
            complain(removed.error());
            status = kFailed;
        }
    }
    return status;
}

}  // namespace sandbox::ctl
