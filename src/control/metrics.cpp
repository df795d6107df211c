// SPDX-License-Identifier: Apache-2.0
#include "control/metrics.hpp"

#include <array>

#include "canon/json.hpp"
#include "control/codec.hpp"
#include "supervisor/inspect.hpp"

namespace sandbox::control {

namespace {

// Each state has a sample, also with 0: a graph must not begin when the first sandbox fails. "dead"
// is what shown_state() calls an active one without a shim.
constexpr std::array kStates{"requested", "resolved", "prepared", "created", "running",
                             "paused",    "stopped",  "failed",   "dead"};

// Prometheus' text format (prometheus.io, "Exposition formats", 0.0.4); names and labels are part
// of docs/api.md, Metrics.
class Text {
public:
    void family(std::string_view name, std::string_view type, std::string_view help)
    {
        // HELP and TYPE once, before its samples.
        name_ = name;
        text_ += "# HELP " + name_ + " " + std::string(help) + "\n# TYPE " + name_ + " " +
                 std::string(type) + "\n";
    }
    // Label values are words of ours: nothing in them needs an escape.
    void sample(std::uint64_t value, std::string_view labels = {}, std::string_view suffix = {})
    {
        text_ += name_ + std::string(suffix);
        if (!labels.empty()) text_ += "{" + std::string(labels) + "}";
        text_ += " " + std::to_string(value) + "\n";
    }
    // A family with one sample and no labels: most of them.
    void one(std::string_view name, std::string_view type, std::string_view help,
             std::uint64_t value)
    {
        family(name, type, help);
        sample(value);
    }
    // Written from integers: no floating point, no loss.
    void seconds(std::uint64_t ns, std::string_view suffix)
    {
        const std::string rest = std::to_string(ns % 1'000'000'000);
        text_ += name_ + std::string(suffix) + " " + std::to_string(ns / 1'000'000'000) + "." +
                 std::string(9 - rest.size(), '0') + rest + "\n";
    }
    std::string take() { return std::move(text_); }

private:
    std::string text_;
    std::string name_;
};

std::string label(std::string_view name, std::string_view value)
{
    return std::string(name) + "=\"" + std::string(value) + "\"";
}

void put_sandboxes(Text& text, const std::vector<supervisor::Listed>& sandboxes)
{
    std::map<std::string, std::uint64_t> states;
    for (const char* state : kStates) states[state] = 0;
    // A state that is not in the list shows all the same.
    for (const auto& one : sandboxes) ++states[supervisor::shown_state(one)];
    text.family("sandbox_sandboxes", "gauge", "Sandboxes that are not removed, by state.");
    for (const auto& [state, count] : states) text.sample(count, label("state", state));
}

void put_requests(Text& text, const Counters& counters)
{
    text.family("sandbox_api_requests_total", "counter", "Requests answered.");
    for (const auto& [key, count] : counters.requests) {
        text.sample(count, label("operation", key.first) + "," +
                               label("code", std::to_string(key.second)));
    }
    text.family("sandbox_api_refused_total", "counter", "Connections refused or ended, by reason.");
    for (const auto& [reason, count] : counters.refused) {
        text.sample(count, label("reason", reason));
    }
    text.one("sandbox_api_connections", "gauge", "Connections open now.", counters.connections);
    text.one("sandbox_api_workers", "gauge", "Calls at work now.", counters.workers);
}

}  // namespace

void Counters::count_answer(const Call& call, int status, std::string_view body)
{
    // By operation and status: both are bounded, so the map is.
    ++requests[{std::string(to_string(call.operation)), status}];
    const bool launch = (call.operation == Operation::run && call.start) ||
                        call.operation == Operation::start;
    // Calls, not generations: restarts of a shim's own are not the daemon's to count.
    // 1xx is the stream's switch: it began.
    if (launch && status < 300) ++launches;
    // 4xx is a mistake or a denial, not a failure of ours.
    if (launch && status >= 500) ++launches_failed;
    if (call.operation == Operation::exec && status < 300) ++execs;
    // Denials are counted by class, which only the answer's body knows.
    if (status != 422) return;
    // The body was made here; its size is bounded.
    const auto json = canon::parse(body);
    if (!json) return;
    if (const auto list = denials_from_json(*json)) {
        for (const auto& denial : *list) ++denials[std::string(to_string(denial.denial_class))];
    }
}

std::string render_metrics(const Counters& counters,
                           const std::vector<supervisor::Listed>& sandboxes)
{
    Text text;
    // Read from the ledger at each scrape: gauges never drift.
    put_sandboxes(text, sandboxes);
    text.one("sandbox_launches_total", "counter", "Generations started through the daemon.",
             counters.launches);
    text.one("sandbox_launches_failed_total", "counter", "Launches that failed.",
             counters.launches_failed);
    text.one("sandbox_execs_total", "counter", "Sessions opened by exec.", counters.execs);
    text.family("sandbox_denials_total", "counter", "Denials by class.");
    for (const auto& [name, count] : counters.denials) text.sample(count, label("class", name));
    put_requests(text, counters);
    text.family("sandbox_reconcile_duration_seconds", "summary", "Time taken by full reconciles.");
    text.seconds(counters.reconcile_ns, "_sum");
    text.sample(counters.reconciles, {}, "_count");
    text.one("sandbox_reconcile_failures_total", "counter", "Reconciles that failed.",
             counters.reconciles_failed);
    text.one("sandbox_reconcile_removed_total", "counter",
             "Things of dead sandboxes that reconcile removed.", counters.removed_things);
    text.one("sandbox_converge_failures_total", "counter",
             "Files of profiles.d that a pass could not bring about.", counters.converge_failures);
    return text.take();
}

}  // namespace sandbox::control
