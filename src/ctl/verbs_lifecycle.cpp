// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <unistd.h>

#include <charconv>
#include <ctime>
#include <map>

#include "canon/json.hpp"
#include "ctl/filters.hpp"
#include "ctl/output.hpp"
#include "ctl/request.hpp"
#include "ctl/service.hpp"
#include "ctl/verbs.hpp"
#include "profile/check.hpp"
#include "supervisor/stats.hpp"
#include "sys/file.hpp"

namespace sandbox::ctl {

namespace {

// A plan is a few KiB; this is a bound for a wrong file.
constexpr std::size_t kMostCreatePlan = 16U << 20;

// One call a name; each failure is said, the others are still done, and the last status stays.
template <class Call>
int for_names(const Context& context, const std::vector<std::string>& names, supervisor::Need need,
              Call&& call)
{
    auto service = open_service(context, need);
    if (!service) return complain(service.error()), kFailed;
    // Opened once for all names.
    int status = 0;
    for (const std::string& name : names) {
        if (const Status done = call(**service, name); !done) {
            complain(done.error());
            status = kFailed;
        }
    }
    return status;
}

Result<supervisor::PlanOutcome> resolve_creation(supervisor::SandboxService& service,
                                                 const supervisor::Paths& paths, const Create& verb)
{
    // The file is a proposal: it is resolved anew, and refused if this host's plan differs.
    if (!verb.plan.empty()) {
        return service.plan_again(
            TRY_WITH(sys::read_file(verb.plan, kMostCreatePlan), "plan file"));
    }
    const auto text = TRY(supervisor::read_profile(paths, verb.profile));
    return service.plan(text, TRY(adjustments(paths, verb.argv, verb.env, verb.overlay)), nullptr);
}

std::string size_text(std::uint64_t bytes)
{
    constexpr std::uint64_t kUnit = 1024;
    const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    std::size_t unit = 0;
    // In integers; TiB are the last unit, and 2^64 bytes in tenths would overflow: no counter is
    // near.
    std::uint64_t tenths = bytes * 10;
    for (; tenths >= kUnit * 10 && unit + 1 < std::size(units); ++unit) tenths /= kUnit;
    return std::to_string(tenths / 10) +
           (unit > 0 ? "." + std::to_string(tenths % 10) : std::string()) + units[unit];
}

std::string cpu_text(const std::optional<std::uint64_t>& millis)
{
    // 1000 are one CPU, and one CPU is 100 %.
    return millis ? std::to_string(*millis / 10) + "." + std::to_string(*millis % 10) + "%" : "-";
}

// Sorted by id, so that lines keep their places between two looks.
using Looks = std::map<SandboxId, supervisor::Stats>;

// What runs right now, or what was named. One that ends between two looks is left out.
Result<Looks> look(supervisor::SandboxService& service, const StatsVerb& verb)
{
    std::vector<std::string> wanted = verb.names;
    if (wanted.empty()) {
        for (const auto& listed : TRY(service.list(false))) {
            const auto state = listed.sandbox.state;
            const bool runs = state == ledger::State::running || state == ledger::State::paused;
            // A shim that died left the state as it was; there is nothing to measure.
            if (runs && listed.shim_alive) wanted.push_back(listed.sandbox.id.str());
        }
    }
    Looks looks;
    for (const std::string& name : wanted) {
        auto stats = service.stats(name);
        // Named explicitly and once: its absence is an error.
        if (!stats && (verb.names.empty() || verb.follow)) continue;
        supervisor::Stats one = TRY(std::move(stats));
        looks.emplace(one.id, std::move(one));
    }
    return looks;
}

void print_looks(const Looks& looks, const Looks& before, Format format, bool follow)
{
    const auto earlier = [&before](const SandboxId& id) {
        const auto it = before.find(id);
        return it == before.end() ? nullptr : &it->second;
    };
    if (format == Format::table) {
        std::vector<std::vector<std::string>> rows{
            {"ID", "NAME", "CPU", "CPU TIME", "MEM", "LIMIT", "PEAK", "PIDS", "OOM"}};
        // The first look has nothing to compare CPU time with: "-".
        for (const auto& [id, s] : looks) {
            rows.push_back(
                {id.str().substr(0, 12), s.name.str(),
                 cpu_text(supervisor::cpu_millis(s, earlier(id))),
                 std::to_string(s.cpu_ns / 1'000'000) + "ms", size_text(s.memory_bytes),
                 s.memory_limit ? size_text(*s.memory_limit) : "-", size_text(s.memory_peak),
                 std::to_string(s.pids) + (s.pids_limit ? "/" + std::to_string(*s.pids_limit) : ""),
                 std::to_string(s.oom_kills)});
        }
        // A terminal is drawn anew; a file gets one table after the other.
        if (follow && stdout_is_terminal()) print("\x1b[H\x1b[2J");
        return print(table(rows));
    }
    canon::Json list = canon::Json::array();
    for (const auto& [id, s] : looks) list.push_back(supervisor::to_json(s, earlier(id)));
    // One document.
    if (!follow) return print(list, format);
    // One object a line: a stream that can be read while it runs.
    for (const canon::Json& one : list) print(one.dump() + "\n");
}

// "17" is the number of the last event seen, anything else a time.
Status set_since(supervisor::EventQuery& query, const std::string& text)
{
    // Seconds since 1970 are larger, and no log of events has so many.
    constexpr std::uint64_t kMostEvents = 1'000'000'000;
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error == std::errc{} && end == text.data() + text.size() && number < kMostEvents) {
        query.after = number;
        return {};
    }
    query.since = TRY(parse_since(text, std::time(nullptr)));
    return {};
}

}  // namespace

int execute(const Context& context, const Create& verb)
{
    if (!verb.name.empty()) {
        // Here too, and not only in the library: the message names the option.
        if (const auto flaw = profile::flaw_in_label(verb.name)) {
            return say("sandboxctl: --name " + escaped(verb.name) + " " + flaw->message),
                   kOurFailure;
        }
    }
    auto service = open_service(context, supervisor::Need::plan);
    if (!service) return complain(service.error()), kOurFailure;
    auto outcome = resolve_creation(**service, supervisor::find_paths(context.root), verb);
    if (!outcome) return complain(outcome.error()), kOurFailure;
    supervisor::RunRequest request(std::move(*outcome));
    request.name = verb.name;
    request.attach = supervisor::Attach::detached;
    request.keep = verb.remove ? supervisor::Keep::remove_on_exit : supervisor::Keep::until_removed;
    // Nothing: denied, or the profile is wrong.
    const auto* plan = std::get_if<plan::ExecutionPlan>(&request.resolved);
    if (plan == nullptr) {
        say_refused(request.resolved, context.format == Format::json, kOurFailure);
        if (std::holds_alternative<std::vector<resolve::Denial>>(request.resolved)) {
            // The audit names what was asked for; there is no sandbox.
            request.name = verb.profile;
            // Recording the denial is for the audit; the answer is the same without it.
            static_cast<void>((*service)->create(request));
        }
        return kOurFailure;
    }
    // Before it is made: a person may want to stop here.
    for (const std::string& warning : (*plan)->warnings)
        say("sandboxctl: warning: " + escaped(warning));
    const auto made = (*service)->create(request);
    if (!made) return complain(made.error()), kOurFailure;
    print(made->name.str() + "\n");
    return 0;
}

int execute(const Context& context, const Start& verb)
{
    auto service = open_service(context, supervisor::Need::plan);
    if (!service) return complain(service.error()), kOurFailure;
    int status = 0;
    for (const std::string& name : verb.names) {
        supervisor::Console console;
        // Without -a nothing of the caller's is used.
        if (verb.attach) {
            console.out = STDOUT_FILENO;
            console.err = STDERR_FILENO;
            if (verb.interactive) console.in = STDIN_FILENO;
        }
        const auto started = (*service)->start(
            name, verb.attach ? supervisor::Attach::foreground : supervisor::Attach::detached,
            console);
        if (!started) {
            complain(started.error());
            status = kOurFailure;
            continue;
        }
        if (!started->why.empty()) say("sandboxctl: " + escaped(started->why));
        // The workload's status with -a; else 0 stays 0.
        if (started->exit_status != 0 || verb.attach) status = started->exit_status;
        if (!verb.attach && started->exit_status == 0) print(started->name.str() + "\n");
    }
    return status;
}

int execute(const Context& context, const Restart& verb)
{
    std::optional<Millis> timeout;
    if (!verb.time.empty()) {
        timeout = parse_timeout(verb.time);
        if (!timeout) {
            return say("sandboxctl: -t wants seconds or a duration such as 500ms, found '" +
                       escaped(verb.time) + "'"),
                   kUsage;
        }
    }
    return for_names(
        context, verb.names, supervisor::Need::plan,
        [&](auto& service, const auto& name) -> Status { return service.restart(name, timeout); });
}

int execute(const Context& context, const Pause& verb)
{
    return for_names(context, verb.names, supervisor::Need::ledger,
                     [](auto& service, const auto& name) { return service.pause(name); });
}

int execute(const Context& context, const Resume& verb)
{
    return for_names(context, verb.names, supervisor::Need::ledger,
                     [](auto& service, const auto& name) { return service.resume(name); });
}

int execute(const Context& context, const Touch& verb)
{
    return for_names(context, verb.names, supervisor::Need::ledger,
                     [](auto& service, const auto& name) { return service.touch(name); });
}

int execute(const Context& context, const StatsVerb& verb)
{
    const auto interval = parse_duration(verb.interval);
    // 0 would be a busy loop.
    if (!interval || interval->count() == 0) {
        return say("sandboxctl: --interval wants a duration such as 1s, found '" +
                   escaped(verb.interval) + "'"),
               kUsage;
    }
    auto service = open_service(context, supervisor::Need::ledger);
    if (!service) return complain(service.error()), kFailed;
    Looks before;
    while (true) {
        auto looks = look(**service, verb);
        if (!looks) return complain(looks.error()), kFailed;
        print_looks(*looks, before, context.format.value_or(Format::table), verb.follow);
        // Whoever read has gone, or everything that was named.
        if (!verb.follow || output_was_lost() || (looks->empty() && !verb.names.empty())) return 0;
        before = std::move(*looks);
        // As a sleep that ends early for a signal; poll(2) takes an int of milliseconds.
        poll(nullptr, 0, static_cast<int>(std::min<std::int64_t>(interval->count(), INT32_MAX)));
    }
}

int execute(const Context& context, const Events& verb)
{
    supervisor::EventQuery query;
    query.reference = verb.name;
    query.follow = verb.follow;
    if (!verb.since.empty()) {
        if (auto set = set_since(query, verb.since); !set) return complain(set.error()), kUsage;
    }
    auto service = open_service(context, supervisor::Need::ledger);
    if (!service) return complain(service.error()), kFailed;
    const Status told = (*service)->events(query, [](const canon::Json& event) {
        // One object a line. "replace": an event may quote anything.
        print(event.dump(-1, ' ', false, canon::Json::error_handler_t::replace) + "\n");
        // False ends the reading: with -f nothing else would.
        return !output_was_lost();
    });
    if (!told) return complain(told.error()), kFailed;
    return 0;
}

}  // namespace sandbox::ctl
