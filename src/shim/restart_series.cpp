// SPDX-License-Identifier: Apache-2.0
#include "shim/restart_series.hpp"

#include "base/failpoint.hpp"
#include "shim/reception.hpp"
#include "shim/restart_wait.hpp"

namespace sandbox::shim {

namespace {

// "Our failure" (design: exit codes): the workload has not run. What clients that wait are told.
constexpr ledger::Exit kNeverRan{125, 0, ledger::ExitReason::unknown, 0};

class Cycle {
public:
    Cycle(const SeriesParts& parts, LaunchRequest& request, plan::ExecutionPlan& plan, Kept first)
        : parts_(parts), journal_(parts.journal), request_(request), plan_(plan),
          last_(std::move(first))
    {
        // The first client had the first generation; later ones are the log's.
        request_.out = Output::log_only;
        request_.err = Output::log_only;
        request_.stdin_open = false;
    }

    ledger::State run()
    {
        // After each generation the policy decides anew, by the plan of now: an update may have
        // changed it.
        while (const auto next = next_restart(plan_->request.lifecycle, attempts_,
                                              {last_.cause, last_.exit.code, last_.ran})) {
            attempts_ = next->attempts;
            auto due = pause(next->delay);
            // Also when the pause fails: without its claim the next start would be nobody's.
            if (!due || !*due) break;
            if (!launch()) break;
        }
        return rest_;
    }

private:
    std::string why() const
    {
        if (last_.cause != EndCause::workload) return std::string(to_string(last_.cause));
        if (last_.exit.reason == ledger::ExitReason::oom) return "out of memory";
        return "exit status " + std::to_string(last_.exit.code);
    }

    // False: the cycle is over.
    Result<bool> pause(Millis delay)
    {
        // All that the last generation made goes first: the next one begins as a first launch does.
        const driver::Unwound unwound = TRY(unwind_generation(journal_, request_));
        // What does not go away would stand in the next one's way: that is for the last unwinding.
        if (!unwound.left.empty()) return false;
        // A first generation that was over at once never made one.
        if (!last_.listener.valid()) {
            last_.listener = TRY(listen_for_clients(request_.binding.run_dir.str()));
        }
        const sys::Deadline due = sys::Deadline::after(delay);
        // The due time is in the claim before the pause begins: if this shim dies, others know when
        // to act.
        TRY_VOID(journal_.between(unwound, rest_,
                                  {attempts_.in_a_row, plan_->request.lifecycle.max_restarts,
                                   static_cast<std::uint64_t>(delay.count()), why()},
                                  due.boottime_ns()));
        // Nobody waits for us now.
        TRY_VOID(journal_.settle());
        // Clients are answered meanwhile: a stop must not have to wait for the next generation.
        RestartWait wait(last_.listener.get(), request_.binding.id.str(), last_.exit);
        const auto ended = wait.wait(due, last_.ttl);
        failpoint("restart.waited");
        if (ended && !*ended) return true;
        const bool over = ended && **ended == EndCause::ttl;
        static_cast<void>(journal_.acted(over ? "ttl" : "stop", "between two attempts"));
        TRY_VOID(journal_.give_up_restart());
        return false;
    }

    // True: it ran, or failed to, and that is told; the policy decides again.
    bool launch()
    {
        // It may have been taken over, or removed, during the pause.
        if (!journal_.begin_again(request_)) {
            static_cast<void>(journal_.give_up_restart());
            return false;
        }
        auto generation = prepare(request_, plan_, parts_.programs, {}, journal_, {},
                                  parts_.log_marker);
        if (!generation) return failed(generation.error());
        // No launcher: whoever asked for the first generation has had its end.
        auto kept = keep(**generation, journal_, {}, std::move(last_.listener), last_.ttl);
        if (!kept) {
            LaunchFailure failure{"keep", std::move(kept.error()),
                                  std::move((*generation)->evidence)};
            // Before it is told: its destructor closes the channels, and PID 1 ends.
            generation->reset();
            return failed(failure);
        }
        // An update may have changed it while it ran.
        plan_ = *(*generation)->plan;
        request_.plan_file = (*generation)->request.plan_file;
        rest_ = ledger::State::stopped;
        last_ = std::move(*kept);
        return true;
    }

    bool failed(const LaunchFailure& failure)
    {
        // The state that counts if no further attempt follows.
        rest_ = ledger::State::failed;
        last_.cause = EndCause::launch_failed;
        last_.exit = kNeverRan;
        last_.ran = Millis{0};
        // False where not even that could be written: then the cycle ends.
        return journal_.failed(to_audit(request_, failure)).has_value();
    }

    const SeriesParts& parts_;
    Journal& journal_;
    LaunchRequest& request_;
    plan::ExecutionPlan& plan_;
    Kept last_;
    Attempts attempts_;
    ledger::State rest_ = ledger::State::stopped;
};

}  // namespace

ledger::State restart_series(const SeriesParts& parts, LaunchRequest& request,
                             plan::ExecutionPlan& plan, Kept first)
{
    Cycle cycle(parts, request, plan, std::move(first));
    return cycle.run();
}

}  // namespace sandbox::shim
