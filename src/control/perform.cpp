// SPDX-License-Identifier: Apache-2.0
#include "control/perform.hpp"

#include "canon/json.hpp"
#include "control/codec.hpp"

namespace sandbox::control {

using canon::Json;
using supervisor::Need;
using supervisor::PlanOutcome;

namespace {

constexpr int kOk = 200;
constexpr int kMade = 201;
constexpr int kRefused = 422;
constexpr int kFailed = 500;
constexpr int kOurFailure = 125;  // the exit status of a launch that failed

std::string text_of(const Json& json)
{
    // Names and messages may hold bytes of a file that is no UTF-8.
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string line_of(const Json& json)
{
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// One answer per object; what runs decides which. In a worker process: blocking is fine here.
class Performer {
public:
    Performer(const Call& call, const supervisor::Paths& paths, const OpenService& open,
              AnswerSink& sink)
        : call_(call), paths_(paths), open_(open), sink_(sink)
    {
    }

    Status perform()
    {
        // What needs more than a name has a function of its own; the rest is act().
        switch (call_.operation) {
        case Operation::plan: return plan();
        case Operation::run: return run();
        case Operation::list: return list();
        case Operation::logs: return logs();
        case Operation::events: return events();
        case Operation::exec: return exec();
        case Operation::attach: return attach();
        case Operation::copy: return copy();
        case Operation::start: return start();
        case Operation::plan_of: return plan_of();
        case Operation::sessions: return sessions();
        case Operation::verify_audit: return verify_audit();
        case Operation::apply: return apply();
        case Operation::version:
        case Operation::metrics: return fail(Code::internal, "answered elsewhere");
        default: return act();
        }
    }

private:
    using Service = std::unique_ptr<supervisor::SandboxService>;
    Result<Service> open(Need need = Need::ledger) { return open_(need); }

    Status answer(const Json& json, int status = kOk)
    {
        return answer_text(text_of(json), kJsonType, status);
    }
    Status answer_text(std::string_view text, std::string_view type, int status = kOk)
    {
        sink_.begin(status, type, AnswerSink::Form::whole);
        sink_.body(text);
        return {};
    }

    Result<PlanOutcome> resolve(supervisor::SandboxService& service)
    {
        const PlanSource& source = call_.plan;
        // Policy and facts are the daemon's, of now: a plan that a client carries is only a
        // request.
        if (!source.plan_file.empty()) return service.plan_again(source.plan_file);
        // By name only: paths are refused in decode.cpp, so no client makes the daemon open one.
        const auto profile = source.profile
                                 ? *source.profile
                                 : TRY(supervisor::read_profile(paths_, source.profile_name));
        return service.plan(profile, source.adjustments,
                            source.snapshot ? &*source.snapshot : nullptr);
    }

    // Denials and diagnostics as `-o json` of the client prints them.
    Status refuse(const PlanOutcome& outcome)
    {
        if (const auto* errors = std::get_if<supervisor::ProfileErrors>(&outcome)) {
            return answer(to_json(errors->diagnostics), kRefused);
        }
        return answer(resolve::to_json(std::get<std::vector<resolve::Denial>>(outcome)), kRefused);
    }

    Status plan()
    {
        const Service service = TRY(open(Need::plan));
        const PlanOutcome outcome = TRY(resolve(*service));
        const auto* plan = std::get_if<plan::ExecutionPlan>(&outcome);
        if (plan == nullptr) return refuse(outcome);
        return answer_text(TRY(plan::encode_file(*plan)), kJsonType);
    }

    Status run()
    {
        const Service service = TRY(open(Need::launch));
        supervisor::RunRequest request(TRY(resolve(*service)));
        request.name = call_.name;
        request.keep = call_.keep;
        request.attach = attachment();
        request.stdin_mode = call_.input ? supervisor::Stdin::open : supervisor::Stdin::closed;
        request.console = call_.console;
        // The status is 422 either way; only a denial is worth a line in the audit.
        if (!std::holds_alternative<plan::ExecutionPlan>(request.resolved)) {
            if (std::holds_alternative<std::vector<resolve::Denial>>(request.resolved)) {
                request.name = call_.plan.profile ? call_.plan.profile->file
                                                  : call_.plan.profile_name;
                // Recording the denial is for the audit; the answer is the same without it.
                static_cast<void>(service->run(request));
            }
            return refuse(request.resolved);
        }
        // Before the launch: a name that the service chose would not be found by a second try.
        if (request.name.empty()) request.name = derived_name(request.resolved);
        auto result = call_.start ? service->run(request) : service->create(request);
        // Ours from the first try, which was cut short after it made the sandbox.
        if (!result && result.error().code() == Code::already_exists && call_.repeated) {
            result = find_made(*service, request.name);
        }
        if (!result) return fail(result.error());
        // A launch that failed is our failure (125); a workload's own status is a success of the
        // call.
        const bool failed = !result->exit && result->exit_status == kOurFailure;
        return answer(to_json(*result), failed ? kFailed : kMade);
    }

    // Repeating a call after a crash must find what the first try made: the name follows from the
    // operation id.
    std::string derived_name(const PlanOutcome& outcome) const
    {
        if (call_.operation_id.empty()) return {};
        const std::string hash = canon::digest(call_.operation_id);
        return std::get<plan::ExecutionPlan>(outcome)->request.name + "-" +
               hash.substr(hash.find(':') + 1, 6);
    }

    static Result<supervisor::RunResult> find_made(supervisor::SandboxService& service,
                                                   const std::string& name)
    {
        for (const auto& one : TRY(service.list(false))) {
            if (one.sandbox.name.str() != name) continue;
            supervisor::RunResult result;
            result.id = one.sandbox.id;
            result.name = one.sandbox.name;
            result.exit = one.sandbox.exit;
            result.exit_status = 0;
            return result;
        }
        // With --rm it may have run and gone: that cannot be told from never having been.
        return fail(Code::conflict, name + " was made and is gone again");
    }

    Status start()
    {
        const Service service = TRY(open(Need::launch));
        return answer(to_json(TRY(service->start(call_.reference, attachment(), call_.console))));
    }

    supervisor::Attach attachment() const
    {
        // A stream is the client's presence: what is started over one ends with it.
        return call_.upgraded ? supervisor::Attach::foreground : supervisor::Attach::detached;
    }

    Status list()
    {
        const Service service = TRY(open());
        Json array = Json::array();
        for (const auto& one : TRY(service->list(call_.all))) {
            array.push_back(to_json(one, call_.detail));
        }
        return answer(array);
    }

    Status logs()
    {
        const Service service = TRY(open());
        Lines lines(sink_);
        return lines.finish(
            service->logs({call_.reference, call_.follow},
                          [&](std::string_view record) { return lines.add(record); }));
    }

    Status events()
    {
        const Service service = TRY(open());
        Lines lines(sink_);
        supervisor::EventQuery query;
        query.reference = call_.reference;
        query.after = call_.after;
        query.since = call_.since;
        query.follow = call_.follow;
        return lines.finish(
            service->events(query, [&](const Json& event) { return lines.add(line_of(event)); }));
    }

    Status exec()
    {
        const Service service = TRY(open());
        supervisor::ExecRequest request = call_.exec;
        request.console = call_.console;
        return answer(to_json(TRY(service->exec(request))));
    }

    Status attach()
    {
        const Service service = TRY(open());
        supervisor::AttachRequest request = call_.attach;
        request.console = call_.console;
        return answer(to_json(TRY(service->attach(request))));
    }

    Status copy()
    {
        const Service service = TRY(open());
        supervisor::CopyRequest request = call_.copy;
        const bool into = request.way == supervisor::CopyRequest::Way::into;
        // The stream is the archive; there is no console.
        request.stream = into ? call_.console.in : call_.console.out;
        return answer(to_json(TRY(service->copy(request))));
    }

    Status plan_of()
    {
        const Service service = TRY(open());
        const auto plan = TRY(service->plan_of(call_.reference));
        return answer_text(TRY(plan::encode_file(plan)), kJsonType);
    }

    Status sessions()
    {
        const Service service = TRY(open());
        Json array = Json::array();
        for (const auto& one : TRY(service->sessions(call_.reference))) {
            array.push_back(to_json(one));
        }
        return answer(array);
    }

    Status verify_audit()
    {
        const Service service = TRY(open());
        Verdict verdict;
        verdict.broken = TRY(service->verify_audit(verdict.head));
        return answer(to_json(verdict));
    }

    Status apply()
    {
        const Service service = TRY(open(Need::plan));
        return answer(to_json(TRY(service->apply(call_.apply))));
    }

    // Verbs that only say whether they succeeded, and those that show one thing.
    Status act()
    {
        // A start resolves the plan again, and needs the host for that.
        const bool starts = call_.operation == Operation::restart;
        const Service service = TRY(open(starts ? Need::plan : Need::ledger));
        const std::string& name = call_.reference;
        switch (call_.operation) {
        case Operation::inspect: return answer(TRY(service->inspect(name)));
        case Operation::wait: {
            const ledger::Exit exit = TRY(service->wait(name));
            return answer(to_json(std::optional(exit)));
        }
        case Operation::stats: return answer(to_json(TRY(service->stats(name))));
        case Operation::reconcile: return answer(to_json(TRY(service->reconcile())));
        case Operation::stop: TRY_VOID(service->stop(name, call_.timeout)); break;
        case Operation::kill: TRY_VOID(service->kill(name, call_.signal)); break;
        case Operation::restart: TRY_VOID(service->restart(name, call_.timeout)); break;
        case Operation::pause: TRY_VOID(service->pause(name)); break;
        case Operation::resume: TRY_VOID(service->resume(name)); break;
        case Operation::touch: TRY_VOID(service->touch(name)); break;
        case Operation::remove: TRY_VOID(service->remove(name, call_.force)); break;
        case Operation::signal_session:
            TRY_VOID(service->signal_session(name, call_.session, call_.signal));
            break;
        default: return fail(Code::internal, "no such operation");
        }
        return answer(Json::object());
    }

    // A line begins the answer; without one it begins when nothing has failed.
    class Lines {
    public:
        explicit Lines(AnswerSink& sink) : sink_(sink) {}
        bool add(std::string_view line)
        {
            begin();
            return sink_.body(std::string(line) + "\n");
        }
        // A failure behind the first line is the last line.
        // The status line is out by then, so the failure can only be said in the body.
        Status finish(Status status)
        {
            if (!status && !begun_) return status;
            begin();
            if (!status) sink_.body(line_of(to_json(status.error())) + "\n");
            return {};
        }

    private:
        void begin()
        {
            if (!begun_) sink_.begin(kOk, kLinesType, AnswerSink::Form::lines);
            begun_ = true;
        }
        AnswerSink& sink_;
        bool begun_ = false;
    };

    const Call& call_;
    const supervisor::Paths& paths_;
    const OpenService& open_;
    AnswerSink& sink_;
};

}  // namespace

void answer_fault(const CallFault& fault, AnswerSink& sink)
{
    sink.begin(fault.status, kJsonType, AnswerSink::Form::whole);
    sink.body(text_of(to_json(fault.error)));
}

// In a worker; what it throws away on failure is closed by its end.
void perform(const Call& call, const supervisor::Paths& paths, const OpenService& open,
             AnswerSink& sink)
{
    const Status done = Performer(call, paths, open, sink).perform();
    if (!done) answer_fault(fault_of(done.error()), sink);
}

}  // namespace sandbox::control
