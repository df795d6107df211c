// SPDX-License-Identifier: Apache-2.0
#include "supervisor/launch.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>

#include "base/failpoint.hpp"
#include "canon/json.hpp"
#include "driver/backend.hpp"
#include "driver/placeholder.hpp"
#include "driver/resources.hpp"
#include "shim/audit_log.hpp"
#include "shim/guest_link.hpp"
#include "supervisor/attach.hpp"
#include "supervisor/context.hpp"
#include "supervisor/stdin_pump.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::supervisor {

namespace {

using ledger::EntryKind;

constexpr std::uint32_t kFirstGeneration = 1;
// A launch that takes longer is taken over: boot 15 s and two replies of 10 s, docs/protocol.md.
constexpr std::uint64_t kLaunchNs = 60ULL * 1'000'000'000ULL;
constexpr int kExitOurFailure = 125;
constexpr Millis kDying{2'000};  // from a closed socket to a zombie: freeing memory, at most

struct Prepared {
    driver::Binding binding;
    std::vector<ledger::Intent> intents;
    std::string operation;
};

using HandOver = std::function<Status(std::vector<shim::JournaledIntent>)>;

std::string name_of(const RunRequest& request, const plan::ExecutionPlan& plan, const SandboxId& id)
{
    if (!request.name.empty()) return request.name;
    return plan->request.name + "-" + id.str().substr(0, 6);
}

// Everything the launch will make, in the order it is made. What rests with a sandbox that was
// there before is there already.
Result<Prepared> prepare_launch(const Host& host, const SandboxId& id, const std::string& name,
                                const plan::ExecutionPlan& plan, const ledger::Sandbox* before)
{
    Prepared p;
    const std::string parent = host.cgroup_parent();
    p.binding.id = id;
    p.binding.name = SandboxName(name);
    p.binding.generation = before != nullptr ? before->generation + 1 : kFirstGeneration;
    p.operation = before != nullptr
                      ? "start-" + id.str() + "-" + std::to_string(p.binding.generation)
                      : "run-" + id.str();
    p.binding.run_dir = HostPath(host.paths.run_of(id));
    p.binding.state_dir = HostPath(host.paths.state_of(id));
    p.binding.cgroup = parent + "/" + id.str();
    const auto add = [&](EntryKind kind, std::string_view detail = {}) {
        p.intents.push_back({kind, driver::resource_name(kind, id, parent, detail)});
    };
    add(EntryKind::shim_process);
    if (before == nullptr) {
        add(EntryKind::state_dir);
        add(EntryKind::log_files);
    }
    add(EntryKind::run_dir);
    add(EntryKind::cgroup_root);
    add(EntryKind::cgroup_control);
    add(EntryKind::cgroup_workload);
    if (!plan->process.idle) add(EntryKind::cgroup_session, shim::kServiceSession);
    if (!plan->masks.empty()) {
        // Which paths are masked does not depend on the ids, which are allocated with the intents.
        driver::Binding sample = p.binding;
        sample.id_base = host.config.id_base;
        const auto artifact = TRY(driver::compile(plan, sample));
        for (const auto& placeholder : TRY(driver::list_placeholders(artifact->steps))) {
            add(EntryKind::placeholder, placeholder.path.str());
        }
    }
    if (!plan->process.idle) add(EntryKind::log_worker);
    for (const EntryKind kind : TRY(driver::backend_of(plan))->processes()) add(kind);
    add(EntryKind::door_socket);
    add(EntryKind::shim_socket);
    return p;
}

// A start was decided on a row seen earlier: whoever was faster has changed it.
Status check_unchanged(const ledger::Sandbox& now, const ledger::Sandbox& before)
{
    if (ledger::rests(now) && now.generation == before.generation &&
        now.plan_digest == before.plan_digest) {
        return {};
    }
    return fail(Code::conflict, before.name.str() +
                                    " was changed by somebody else meanwhile "
                                    "(state " +
                                    std::string(ledger::to_string(now.state)) + ")");
}

// One commit: the row, the id range, every intent, the claim and the audit line. `hand_over` is
// called when ids and intents have their numbers, so that the shim reads them while they become
// durable; it acts only once it is released, after this has returned.
Status commit_intents(const Host& host, ledger::Ledger& ledger, Prepared& p,
                      const plan::ExecutionPlan& plan, const RunRequest& request,
                      const sys::ProcessIdentity& shim, const ledger::Sandbox* before,
                      const HandOver& hand_over)
{
    failpoint("intent.before");
    TRY_VOID(ledger.keep_reserve());
    const ledger::Sandbox row = before != nullptr
                                    ? *before
                                    : TRY(describe_new(host, p.binding.id, plan, request));
    const ledger::Moment now = before != nullptr ? TRY(ledger::now()) : row.created;
    auto transaction = TRY(ledger.begin());
    if (before == nullptr) {
        TRY_VOID(transaction.insert(row));
    } else {
        TRY_VOID(check_unchanged(TRY(transaction.get(row.id)), *before));
        TRY_VOID(transaction.set_desired(row.id, ledger::Desired::running));
    }
    if (request.managed) {
        ledger::Managed managed = *request.managed;
        managed.sandbox = row.id;
        TRY_VOID(transaction.set_managed(managed));
    }
    TRY(transaction.begin_generation(row.id));
    TRY_VOID(transaction.set_shim(row.id, shim));
    const auto range = TRY(
        transaction.allocate_ids(row.id, {host.config.id_base, host.config.id_ranges}));
    p.binding.id_base = range.first;
    const std::uint64_t first = TRY(transaction.intend(row.id, p.intents));
    std::vector<shim::JournaledIntent> journaled;
    for (std::size_t i = 0; i < p.intents.size(); ++i) {
        journaled.push_back(
            {first + i, std::string(ledger::to_string(p.intents[i].kind)), p.intents[i].name});
    }
    TRY_VOID(hand_over(std::move(journaled)));
    TRY_VOID(transaction.observed(first, ledger::encode(shim)));
    TRY_VOID(transaction.set_state(row.id, ledger::State::prepared));
    // Somebody alive who acts on it goes first; nobody does on one that has just come to be.
    TRY(transaction.claim({p.operation, row.id, before != nullptr ? "start" : "run",
                           plan.digest().str(), shim, "launch", now.boottime_ns + kLaunchNs},
                          now, is_alive));
    std::vector<audit::Body> events;
    if (before != nullptr) events.emplace_back(audit::Acted{"start", ""});
    events.emplace_back(audit::resolved(plan));
    TRY_VOID(shim::queue_audit(ledger, transaction,
                               {row.id, row.name, p.binding.generation, p.operation, now.utc},
                               std::move(events)));
    failpoint("intent.before-commit");
    TRY_VOID(transaction.commit());
    failpoint("intent.after");
    return {};
}

shim::Output output_to(int fd)
{
    if (fcntl(fd, F_GETFD) < 0) return shim::Output::log_only;
    return isatty(fd) == 1 ? shim::Output::terminal : shim::Output::plain;
}

// Signals that a person at the prompt means for the workload.
Result<sys::UniqueFd> catch_signals()
{
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&set, signal);
    if (sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return fail_errno("sigprocmask");
    const int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) return fail_errno("signalfd");
    return sys::UniqueFd(fd);
}

// Waits with the shim; passes on what the person at the prompt types and signals.
class Attendant {
public:
    // Without a Steering the signals of this process are the person's.
    Attendant(FreshShim& shim, Attach attach, sys::UniqueFd stdin_write, Steering* steering)
        : shim_(shim.identity), connection_(shim.connection), attach_(attach),
          pump_(std::move(stdin_write)), steering_(steering)
    {
    }

    // Until the workload runs, or will not.
    Result<RunResult> await_running(RunResult result)
    {
        attach_ = Attach::detached;
        result = TRY(attend(std::move(result)));
        attach_ = Attach::foreground;
        return result;
    }

    Result<RunResult> attend(RunResult result)
    {
        // Blocked before the workload can run, so that none is lost.
        if (steering_ == nullptr) signals_ = TRY(catch_signals());
        while (true) {
            std::array<pollfd, 4> wait{
                {{connection_.fd(), POLLIN, 0},
                 {steering_ != nullptr ? steering_->fd() : signals_.get(), POLLIN, 0},
                 {pump_.input(), POLLIN, 0},
                 {pump_.output(), POLLOUT, 0}}};
            if (poll(wait.data(), wait.size(), -1) < 0 && errno != EINTR) return fail_errno("poll");
            if (wait[1].revents != 0) forward_signals();
            if (wait[2].revents != 0) pump_.read_more();
            if (wait[3].revents != 0) pump_.write_more();
            if (wait[0].revents == 0) continue;
            const auto reply = TRY(connection_.receive(sys::Deadline::never()));
            if (!reply) {
                await_death();
                return fail(Code::unavailable, "the shim of " + result.name.str() +
                                                   " died: run 'sandboxctl reconcile'");
            }
            if (take(*reply, result)) return result;
        }
    }

private:
    // True when there is nothing more to wait for.
    bool take(const shim::Reply& reply, RunResult& result)
    {
        if (const auto* failed = std::get_if<shim::Failed>(&reply)) {
            result.exit_status = kExitOurFailure;
            result.why = failed->step + ": " + failed->why;
            return true;
        }
        if (std::holds_alternative<shim::Running>(reply)) {
            failpoint("told.running");
            result.exit_status = 0;
            return attach_ == Attach::detached;
        }
        if (const auto* ended = std::get_if<shim::Ended>(&reply)) {
            failpoint("told.ended");
            result.exit = ended->exit;
            result.exit_status = ended->exit.code;
            result.why = ended->why;
            return true;
        }
        return false;
    }

    // Its socket closes a little before it counts as dead: the reconcile that is asked for below must
    // not find it dying and take it for alive.
    void await_death() const
    {
        const auto process = sys::Pidfd::open(shim_);
        if (process) static_cast<void>(process->wait_ended(sys::Deadline::after(kDying)));
    }

    void forward_signals()
    {
        if (steering_ != nullptr) {
            while (const auto steer = steering_->next()) {
                if (steer->kind == Steer::Kind::signal) {
                    static_cast<void>(connection_.send(shim::SignalRequest{steer->signal}));
                }
            }
            return;
        }
        signalfd_siginfo info{};
        if (read(signals_.get(), &info, sizeof info) != sizeof info) return;
        const auto signal = static_cast<int>(info.ssi_signo);
        static_cast<void>(
            connection_.send(shim::SignalRequest{signal == SIGHUP ? SIGTERM : signal}));
    }

    sys::ProcessIdentity shim_;
    ShimConnection& connection_;
    Attach attach_;
    StdinPump pump_;
    Steering* steering_;
    sys::UniqueFd signals_;
};

// A foreground run whose process has a terminal: with it until it ends or is left.
Result<RunResult> attend_on_terminal(Attendant& attendant, sys::UniqueFd stream,
                                     const Console& console, RunResult result)
{
    result = TRY(attendant.await_running(std::move(result)));
    if (result.exit || !result.why.empty()) return result;
    const SessionResult session = TRY(attend_terminal(std::move(stream), console, 0, {}));
    result.exit_status = session.exit_status;
    if (!session.exit) return result;
    // The shim knows more than the stream can say: OOM, time-out, killed.
    return attendant.attend(std::move(result));
}

}  // namespace

Result<ledger::Sandbox> describe_new(const Host& host, const SandboxId& id,
                                     const plan::ExecutionPlan& plan, const RunRequest& request)
{
    ledger::Sandbox row;
    row.id = id;
    row.name = SandboxName(name_of(request, plan, id));
    row.profile = plan->request.name;
    row.driver = profile::to_string(plan->driver);
    row.isolation_class = plan::to_string(plan->isolation_class);
    row.plan_digest = plan.digest().str();
    row.plan_path = host.paths.state_of(id) + "/plan.json";
    row.log_path = host.paths.logs_of(id);
    row.state = ledger::State::resolved;
    row.created = TRY(ledger::now());
    if (request.keep == Keep::remove_on_exit) row.remove_on_exit = ledger::RemoveOnExit::yes;
    canon::Json labels = canon::Json::object();
    for (const auto& [key, value] : plan->request.labels) labels[key] = value;
    row.labels = TRY(canon::serialize(labels));
    row.request_digest = row.plan_digest;
    return row;
}

Status check_capacity(const Host& host, ledger::Ledger& ledger)
{
    std::uint32_t most = host.config.max_sandboxes;
    if (const auto& cap = host.policy.limits().max.sandboxes) most = std::min(most, *cap);
    std::uint32_t running = 0;
    for (const ledger::Sandbox& sandbox : TRY(ledger.list(ledger::ListScope::live))) {
        if (ledger::is_active(sandbox.state) && !ledger::rests(sandbox)) ++running;
    }
    if (running < most) return {};
    return fail(Code::resource_exhausted, std::to_string(running) + " sandboxes run, at most " +
                                              std::to_string(most) + " may: stop one first");
}

Result<EarlyShim> start_early(const Host& host)
{
    SandboxId id = TRY(ledger::new_sandbox_id());
    failpoint("shim.before");
    FreshShim shim = TRY(start_shim(host, id));
    failpoint("shim.after");
    return EarlyShim{std::move(id), std::move(shim)};
}

Result<RunResult> launch(const Host& host, ledger::Ledger& ledger, EarlyShim early,
                         const plan::ExecutionPlan& plan, const RunRequest& request,
                         const ledger::Sandbox* before)
{
    const std::string name = before != nullptr ? before->name.str()
                                               : name_of(request, plan, early.id);
    TRY_VOID(check_capacity(host, ledger));
    Prepared prepared = TRY(prepare_launch(host, early.id, name, plan, before));

    shim::LaunchRequest message;
    message.plan_file = TRY(plan::encode_file(plan));
    message.operation = prepared.operation;
    message.state_root = host.paths.state;
    message.cgroup_parent = host.cgroup_parent();
    message.secret_store = host.secret_store();
    message.on_exit = request.keep == Keep::remove_on_exit ? shim::OnExit::remove
                                                           : shim::OnExit::keep;
    message.log = {host.config.log_size.count, host.config.log_files};

    std::vector<int> fds;
    sys::Pipe input;
    if (request.stdin_mode == Stdin::open && request.attach == Attach::foreground &&
        !plan->process.terminal) {
        input = TRY(sys::make_pipe());
        message.stdin_open = true;
        fds.push_back(input.read.get());
    }
    const bool terminal = plan->process.terminal;
    sys::SocketPair attachment;
    if (!request.console.term.empty()) message.term = request.console.term.substr(0, 64);
    message.rows = request.console.rows;
    message.cols = request.console.cols;
    if (terminal && request.attach == Attach::foreground) {
        attachment = TRY(sys::socket_pair(sys::SocketType::stream));
        message.attached = true;
        fds.push_back(attachment.second.get());
    } else if (request.attach == Attach::foreground) {
        message.out = output_to(STDOUT_FILENO);
        message.err = output_to(STDERR_FILENO);
        if (message.out != shim::Output::log_only) fds.push_back(STDOUT_FILENO);
        if (message.err != shim::Output::log_only) fds.push_back(STDERR_FILENO);
    }
    TRY_VOID(commit_intents(host, ledger, prepared, plan, request, early.shim.identity, before,
                            [&](std::vector<shim::JournaledIntent> intents) {
                                message.intents = std::move(intents);
                                message.binding = prepared.binding;
                                return submit(early.shim.connection, message, fds);
                            }));
    TRY_VOID(release(early.shim.connection));
    failpoint("submit.after");
    input.read.reset();
    Attendant attendant(early.shim, request.attach, std::move(input.write),
                        request.console.steering);
    RunResult result;
    result.id = early.id;
    result.name = SandboxName(name);
    if (!attachment.first.valid()) return attendant.attend(std::move(result));
    attachment.second.reset();
    return attend_on_terminal(attendant, std::move(attachment.first), request.console,
                              std::move(result));
}

Status record_denial(const Host& host, ledger::Ledger& ledger, const std::string& profile,
                     const std::vector<resolve::Denial>& denials)
{
    audit::Denied event;
    event.profile = profile;
    event.policy_digest = host.policy.digest();
    for (const resolve::Denial& d : denials) {
        event.denials.push_back({std::string(resolve::to_string(d.denial_class)), d.reason, d.key,
                                 d.requirement, d.fact, d.mend, d.source});
    }
    const auto now = TRY(ledger::now());
    auto transaction = TRY(ledger.begin());
    TRY_VOID(shim::queue_audit(ledger, transaction, {{}, {}, 0, {}, now.utc}, {std::move(event)}));
    TRY_VOID(transaction.commit());
    return shim::flush_audit(ledger, host.paths.state);
}

}  // namespace sandbox::supervisor
