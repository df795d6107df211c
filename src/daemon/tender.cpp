// SPDX-License-Identifier: Apache-2.0
#include "daemon/tender.hpp"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "canon/json.hpp"
#include "control/fields.hpp"
#include "control/frames.hpp"
#include "supervisor/converge.hpp"
#include "supervisor/embedded.hpp"
#include "sys/deadline.hpp"
#include "sys/file.hpp"

namespace sandbox::daemon {

// What is told fits a frame (control::kMostResultBytes) by far: a line is a path or a name and a
// reason.
namespace {

constexpr std::size_t kMostLines = 200;  // in one message

// BOOTTIME: a host that slept in between took that long.
std::uint64_t since(std::int64_t began)
{
    return static_cast<std::uint64_t>(sys::boottime_ns() - began);
}

Tended reconcile_once(const supervisor::Paths& paths)
{
    Tended tended;
    const std::int64_t began = sys::boottime_ns();
    // A service for each pass: it sees config and policy as they are now.
    const auto report = [&]() -> Result<supervisor::Report> {
        const auto service = TRY(
            supervisor::EmbeddedService::open(paths, supervisor::Need::ledger));
        return service->reconcile();
    }();
    tended.took_ns = since(began);
    if (!report) {
        tended.failure = report.error().message();
        return tended;
    }
    tended.removed = report->removed.size();
    for (const auto& line : report->removed) {
        if (tended.lines.size() < kMostLines) {
            tended.lines.push_back("removed " + line.what + " (" + line.why + ")");
        }
    }
    return tended;
}

Tended converge_once(supervisor::Converger& converger)
{
    using Action = supervisor::Applied::Action;
    Tended tended;
    tended.what = Tended::What::converge;
    const std::int64_t began = sys::boottime_ns();
    const auto report = converger.converge();
    tended.took_ns = since(began);
    if (!report) {
        tended.failure = report.error().message();
        return tended;
    }
    for (const supervisor::Applied& item : report->items) {
        // Files that failed, and the pass goes on.
        if (item.bad()) ++tended.failures;
        // What is as it should be is not worth a line, every minute.
        const bool quiet = item.action == Action::nothing || item.action == Action::keep;
        if ((quiet && !item.bad()) || tended.lines.size() >= kMostLines) continue;
        tended.lines.push_back(std::string(supervisor::to_string(item.action)) + " " + item.name +
                               " (" + item.source +
                               "): " + (item.failure.empty() ? item.why : item.failure));
    }
    return tended;
}

// Single-threaded, in a process without other duties: it may block as long as it likes.
class Tender {
public:
    Tender(const supervisor::Paths& paths, Millis interval, int channel)
        : paths_(paths), interval_(interval), channel_(channel)
    {
        // Without a watch the timer still reconciles; profiles.d is then not looked at, and the log
        // says so.
        auto converger = supervisor::Converger::watch(paths);
        if (converger) {
            converger_.emplace(std::move(*converger));
        } else {
            Tended failed;
            failed.what = Tended::What::converge;
            failed.failure = "profiles.d is not watched: " + converger.error().message();
            tell(failed);
        }
    }

    void run()
    {
        // Left by _exit() only: the channel's end is the end.
        while (true) {
            // First: what dead sandboxes hold may be what a new one needs.
            tell(reconcile_once(paths_));
            converge();
            auto next = sys::Deadline::after(interval_);
            // A change of profiles.d converges at once and leaves the timer alone.
            while (!next.passed()) wait(next);
        }
    }

private:
    void converge()
    {
        if (converger_) tell(converge_once(*converger_));
    }

    // Until something is due before the timer, or the timer.
    void wait(sys::Deadline& next)
    {
        // Asked anew each time: watches come and go with the folders.
        std::vector<pollfd> list{{channel_, POLLIN, 0}};
        if (converger_) {
            for (const int fd : converger_->watch_fds()) list.push_back({fd, POLLIN, 0});
        }
        // EINTR is no reason to end. Without poll nothing would work; the daemon then starts
        // another process.
        if (poll(list.data(), list.size(), next.poll_timeout()) < 0 && errno != EINTR) _exit(1);
        if (list[0].revents != 0) {
            std::array<char, 64> bytes{};
            // End of file: the daemon has ended, or wants us to. _exit: what was forked with us is
            // not ours to take down.
            if (read(channel_, bytes.data(), bytes.size()) <= 0) _exit(0);
            // A byte: everything now.
            next = sys::Deadline::after(Millis{0});
            return;
        }
        if (converger_ && converger_->on_event()) converge();
    }

    void tell(const Tended& tended) const
    {
        const std::string frame = control::encode_frame(control::FrameType::body, encode(tended));
        // Nobody listens: then there is nothing to tend for.
        if (!sys::write_all(channel_, frame)) _exit(0);
    }

    const supervisor::Paths& paths_;
    Millis interval_;
    int channel_;
    std::optional<supervisor::Converger> converger_;
};

}  // namespace

std::string encode(const Tended& tended)
{
    const canon::Json json{
        {"what", tended.what == Tended::What::reconcile ? "reconcile" : "converge"},
        {"took_ns", tended.took_ns},
        {"removed", tended.removed},
        {"failures", tended.failures},
        {"failure", tended.failure},
        {"lines", tended.lines}};
    // "replace": a path may be no UTF-8, and a message must not be lost for it.
    return json.dump(-1, ' ', false, canon::Json::error_handler_t::replace);
}

Result<Tended> decode_tended(std::string_view payload)
{
    const canon::Json json = TRY(canon::parse(payload));
    control::Fields fields(json, "tended");
    Tended tended;
    // Anything else is "reconcile", the default; both ends are one program.
    if (fields.text("what") == "converge") tended.what = Tended::What::converge;
    tended.took_ns = fields.count("took_ns").value_or(0);
    tended.removed = fields.count("removed").value_or(0);
    tended.failures = fields.count("failures").value_or(0);
    // Missing is 0 or empty: a message is for people and counters.
    tended.failure = fields.text("failure").value_or("");
    tended.lines = fields.texts("lines").value_or(std::vector<std::string>());
    TRY_VOID(fields.finish());
    return tended;
}

void tend(const supervisor::Paths& paths, Millis interval, int channel)
{
    Tender(paths, interval, channel).run();
}

}  // namespace sandbox::daemon
