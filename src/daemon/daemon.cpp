// SPDX-License-Identifier: Apache-2.0
#include "daemon/daemon.hpp"

#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>

#include "canon/json.hpp"
#include "control/calls.hpp"
#include "control/frames.hpp"
#include "control/operations.hpp"
#include "control/server.hpp"
#include "daemon/instance.hpp"
#include "daemon/service_manager.hpp"
#include "daemon/tender.hpp"
#include "supervisor/embedded.hpp"
#include "sys/file.hpp"

// The daemon does no work of its own: calls are done in forked workers (control), the upkeep in a
// process that tends. This process only waits, so one bad call cannot stop it.
namespace sandbox::daemon {

namespace {

using canon::Json;
using control::Loop;
using control::Worker;

// systemd's own default is 90 s before SIGKILL; calls at work have most of it.
// systemd.service(5), TimeoutStopSec.
constexpr Millis kDrainTime{60'000};
// A pass that is longer goes on without us: it is a process of its own.
constexpr Millis kLastPass{10'000};
// So that one that dies at once does not become a loop of forks.
constexpr Millis kTenderPause{5'000};  // before one that died is started again

// Made once: nothing in it changes while this process lives.
std::string version_json()
{
    Json capabilities = Json::array();
    for (const auto& route : control::routes()) {
        capabilities.push_back(std::string(control::to_string(route.operation)));
    }
    const Json json{{"version", SANDBOX_VERSION},
                    {"generation", control::kApiGeneration},
                    {"capabilities", std::move(capabilities)},
                    {"pid", getpid()}};
    return json.dump(2) + "\n";
}

Result<sys::UniqueFd> catch_signals()
{
    // HUP is "read again" by custom.
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
    // Before the first worker is forked: they inherit the mask, and undo it themselves.
    if (sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return fail_errno("sigprocmask");
    // A client that went away is an error where we write.
    std::signal(SIGPIPE, SIG_IGN);
    sys::UniqueFd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd) return fail_errno("signalfd");
    return fd;
}

// A service for each call, opened in the worker: config and policy are read anew, and what a call
// does wrong ends with its process.
control::OpenService opener(const supervisor::Paths& paths)
{
    return [paths](supervisor::Need need) -> Result<std::unique_ptr<supervisor::SandboxService>> {
        return TRY(supervisor::EmbeddedService::open(paths, need));
    };
}

control::ServerParts make_parts(const supervisor::Paths& paths, const Log& log)
{
    control::ServerParts parts;
    parts.version = version_json();
    // In the worker. perform_once() answers a call that is sent again from what it has recorded.
    parts.work = [paths](const control::Call& call, control::AnswerSink& sink) {
        const auto once = [&](const control::Call& one, control::AnswerSink& into) {
            control::perform(one, paths, opener(paths), into);
        };
        control::perform_once(call, paths.state, once, sink);
    };
    // Also in a worker; the counters are the daemon's, copied at the fork.
    parts.metrics = [paths](const control::Counters& counters) -> Result<std::string> {
        const auto service = TRY(
            supervisor::EmbeddedService::open(paths, supervisor::Need::ledger));
        return control::render_metrics(counters, TRY(service->list(false)));
    };
    // `log` outlives the server: serve()'s caller owns it.
    parts.log = [&log](int priority, std::string_view message,
                       std::span<const control::LogField> fields) {
        log.write(priority, message, fields);
    };
    return parts;
}

// The group of a socket that the manager made: its members may use the API, as with our own socket.
gid_t group_of(int listener)
{
    sockaddr_un address{};
    socklen_t size = sizeof address;
    struct stat info{};
    // An abstract or unnamed socket has no file and no group.
    if (getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
        address.sun_path[0] == '/' && stat(address.sun_path, &info) == 0) {
        return info.st_gid;
    }
    // Nobody more than who runs us.
    return getegid();
}

// One thread. The order of members matters: watches and timers end before the loop that they belong
// to.
class Daemon {
public:
    Daemon(supervisor::Paths paths, Millis interval, const Log& log)
        : paths_(std::move(paths)), interval_(interval), log_(log),
          server_(loop_, make_parts(paths_, log)), tender_timer_(loop_.timer()),
          watchdog_timer_(loop_.timer())
    {
    }

    Status listen(Instance& instance)
    {
        // With a manager's socket we make none: it may have queued connections already.
        auto given = TRY(take_listeners());
        if (given.empty()) {
            auto socket = TRY(instance.listen());
            return server_.listen(std::move(socket), instance.group());
        }
        for (sys::UniqueFd& listener : given) {
            const gid_t group = group_of(listener.get());
            TRY_VOID(server_.listen(std::move(listener), group));
        }
        return {};
    }

    Status run()
    {
        // Signals first: what comes while we start is not lost.
        signals_ = TRY(loop_.watch(TRY(catch_signals())));
        await_signal();
        start_tender();
        if (const auto interval = watchdog_interval()) feed_watchdog(*interval);
        // After listening: whoever was waiting for us may connect now (sd_notify(3)).
        notify("READY=1\nSTATUS=Serving " + paths_.socket());
        log_.write(kNotice, "sandboxd " SANDBOX_VERSION " serves " + paths_.socket());
        loop_.run();
        return {};
    }

private:
    // One-shot watches: each is armed again by its own handler.
    void await_signal()
    {
        signals_->when_readable([this] {
            signalfd_siginfo info{};
            while (read(signals_->fd(), &info, sizeof info) == sizeof info) {
                if (info.ssi_signo == SIGHUP)
                    reload();
                else
                    stop();
            }
            await_signal();
        });
    }

    // Config, policy and profiles are read anew by every call and pass: one pass now.
    void reload()
    {
        log_.write(kNotice, "SIGHUP: looking at configuration and profiles.d again");
        // A byte means "now", whatever it is.
        if (tender_) static_cast<void>(sys::write_all(tender_->fd(), "r"));
    }

    void stop()
    {
        // A second signal does not shorten what the first began.
        if (stopping_) return;
        stopping_ = true;
        notify("STOPPING=1\nSTATUS=Waiting for calls at work");
        log_.write(kNotice, "stopping: no new calls; sandboxes go on");
        // No new pass; the one at work ends by itself.
        tender_timer_->cancel();
        // Closing the channel is the order to end.
        tender_.reset();
        server_.drain(kDrainTime, [this] { await_tender_end(); });
    }

    // It sees that its channel is closed when its pass is over; one that is long ends without us.
    void await_tender_end()
    {
        if (tender_process_) {
            // Also when it has died already: the pidfd is readable then.
            static_cast<void>(tender_process_->wait_exit(sys::Deadline::after(kLastPass)));
        }
        loop_.stop();
    }

    void feed_watchdog(Millis interval)
    {
        notify("WATCHDOG=1");
        watchdog_timer_->after(interval, [this, interval] { feed_watchdog(interval); });
    }

    void start_tender()
    {
        if (stopping_) return;
        // Forked, as every worker is: reconciling takes locks and blocks for seconds.
        auto worker = control::start_task(
            [this](int channel) { tend(paths_, interval_, channel); });
        auto watch = worker ? loop_.watch(std::move(worker->channel)) : fail(worker.error());
        if (!watch) {
            // Said and tried again: without it dead sandboxes keep their cgroups and mounts, and
            // calls work all the same.
            log_.write(kError, "no reconcile runs: " + watch.error().message());
            return start_tender_later();
        }
        tender_process_.emplace(std::move(worker->process));
        tender_ = std::move(*watch);
        // A new one: the last may have ended inside a frame.
        cutter_ = control::FrameCutter(control::kMostResultBytes);
        await_tender();
    }

    void start_tender_later()
    {
        tender_timer_->after(kTenderPause, [this] { start_tender(); });
    }

    void await_tender()
    {
        tender_->when_readable([this] {
            // 64 KiB: a pipe's worth at once.
            std::string chunk(64U << 10, '\0');
            // Readable, so this does not block.
            const ssize_t count = read(tender_->fd(), chunk.data(), chunk.size());
            if (count <= 0) return on_tender_end();
            cutter_.feed(std::string_view(chunk).substr(0, static_cast<std::size_t>(count)));
            for (auto frame = cutter_.next(); frame && *frame; frame = cutter_.next()) {
                // What does not decode is left out: it is our own program of the same version, and
                // only for the log.
                if (const auto tended = decode_tended((*frame)->payload)) note(*tended);
            }
            await_tender();
        });
    }

    void on_tender_end()
    {
        log_.write(kError, "the process that reconciles died: another one is started");
        // It may have closed its channel and live on.
        static_cast<void>(tender_process_->send_signal(SIGKILL));
        // Blocks the loop for a second at most, and only after SIGKILL.
        static_cast<void>(tender_process_->wait_exit(sys::Deadline::after(Millis{1'000})));
        // Its watch is what called.
        // Not here: it would destroy the very handler that runs.
        loop_.soon([this] { tender_.reset(); });
        start_tender_later();
    }

    void note(const Tended& tended)
    {
        control::Counters& counters = server_.counters();
        const bool reconcile = tended.what == Tended::What::reconcile;
        if (reconcile) {
            ++counters.reconciles;
            counters.reconcile_ns += tended.took_ns;
            counters.removed_things += tended.removed;
            if (!tended.failure.empty()) ++counters.reconciles_failed;
        } else {
            counters.converge_failures += tended.failures + (tended.failure.empty() ? 0 : 1);
        }
        const std::string what = reconcile ? "reconcile: " : "profiles.d: ";
        // Else a broken profile would fill the log, once a minute.
        // The same again at every pass is said once.
        std::string& said = reconcile ? said_of_reconcile_ : said_of_converge_;
        std::string text = tended.failure;
        for (const std::string& line : tended.lines) text += "\n" + line;
        // Also when all is well again: then the text is empty, and the next failure is news.
        if (text == said) return;
        said = text;
        if (!tended.failure.empty()) log_.write(kError, what + tended.failure);
        for (const std::string& line : tended.lines) {
            log_.write(tended.failures > 0 ? kWarning : kNotice, what + line);
        }
    }

    // Declared before what uses them.
    supervisor::Paths paths_;
    Millis interval_;
    const Log& log_;
    Loop loop_;
    control::Server server_;
    std::unique_ptr<Loop::Watch> signals_;
    std::unique_ptr<Loop::Timer> tender_timer_;
    std::unique_ptr<Loop::Timer> watchdog_timer_;
    std::unique_ptr<Loop::Watch> tender_;
    std::optional<sys::Pidfd> tender_process_;
    control::FrameCutter cutter_;
    std::string said_of_reconcile_;
    std::string said_of_converge_;
    bool stopping_ = false;
};

}  // namespace

Status serve(const Options& options, const Log& log)
{
    const auto paths = TRY(supervisor::locate(options.root));
    Instance instance = TRY(Instance::claim(paths));
    Daemon daemon(paths, options.reconcile_interval, log);
    TRY_VOID(daemon.listen(instance));
    const Status ran = daemon.run();
    // Also after a failure: the next one must not find a socket of the dead.
    instance.withdraw();
    return ran;
}

std::string describe_routes()
{
    // From the same table that dispatches, so the documents cannot be held against anything else.
    Json list = Json::array();
    for (const auto& route : control::routes()) {
        Json query = Json::array();
        for (const auto key : route.query) query.push_back(std::string(key));
        const bool must = route.upgrade == control::Upgrade::must;
        list.push_back({{"method", std::string(route.method)},
                        {"path", std::string(route.pattern)},
                        {"operation", std::string(control::to_string(route.operation))},
                        {"upgrade", must                                     ? "must"
                                    : route.upgrade == control::Upgrade::may ? "may"
                                                                             : "never"},
                        {"query", std::move(query)},
                        {"most_body", route.most_body}});
    }
    return list.dump(2) + "\n";
}

}  // namespace sandbox::daemon
