// SPDX-License-Identifier: Apache-2.0
#include "shim/health_check.hpp"

#include <fcntl.h>

#include <array>
#include <cstring>

#include "base/failpoint.hpp"
#include "canon/json.hpp"
#include "driver/resources.hpp"
#include "sys/file.hpp"

namespace sandbox::shim {

namespace {

// sandbox-init enforces health.timeout itself; this is for one that does not answer any more.
constexpr Millis kSilence{5'000};
// The wire's field; longer than anybody waits for a check.
constexpr std::int64_t kMostTimeout = UINT32_MAX;
constexpr int kMostCheckMessages = 16;  // a check says CONFINED, STARTED and EXIT
constexpr std::uint8_t kFiltering = 2;  // SECCOMP_MODE_FILTER, linux/seccomp.h

// Every control of the process holds for its check: only the command and the time-out differ.
Result<wire::Open> describe_check(const plan::ProcessPlan& process, const profile::Health& health)
{
    wire::Open open = TRY(describe_process(process));
    open.kind = wire::SessionKind::exec;
    open.argv = health.argv;
    open.timeout_ms = static_cast<std::uint32_t>(
        std::min<std::int64_t>(health.timeout.count(), kMostTimeout));
    return open;
}

// What the child read of itself before exec; nothing of the check runs unless this is in force. The
// other controls are those of the sandbox, which were observed at its launch.
bool is_confined(const wire::Confined& report, const plan::ProcessPlan& process)
{
    return report.uid == process.uid && report.gid == process.gid && report.groups.empty() &&
           report.no_new_privs && report.seccomp_mode == kFiltering;
}

}  // namespace

HealthCheck::HealthCheck(Loop& loop, Generation& generation, Journal& journal,
                         std::function<void(Health)> changed)
    : loop_(loop), generation_(generation), journal_(journal),
      health_(*(*generation.plan)->request.lifecycle.health), record_(health_.retries),
      changed_(std::move(changed))
{
}

HealthCheck::~HealthCheck() { stop(); }

Status HealthCheck::start()
{
    // A file of the generation before must not speak for this one.
    TRY_VOID(save());
    again();
    return {};
}

void HealthCheck::stop()
{
    stopped_ = true;
    abandon();
}

void HealthCheck::hold()
{
    held_ = true;
    abandon();
}

void HealthCheck::release()
{
    held_ = false;
    again();
}

void HealthCheck::again()
{
    // One timer at most, also after hold() and release() in quick turn.
    if (stopped_ || held_ || timer_) return;
    const auto timer = loop_.after(health_.interval, [this] {
        timer_.reset();
        begin();
    });
    if (timer) timer_ = *timer;
}

void HealthCheck::abandon()
{
    for (auto* token : {&watch_, &timer_, &late_}) {
        if (*token) loop_.forget(**token);
        token->reset();
    }
    // PID 1 kills a session whose stream has closed: no signal of ours could reach it more surely.
    session_.reset();
}

void HealthCheck::begin()
{
    if (auto opened = open(); !opened) conclude(false, opened.error().message());
}

Status HealthCheck::open()
{
    const plan::ExecutionPlan& plan = *generation_.plan;
    const driver::Binding& binding = generation_.request.binding;
    // Made at the first check and kept: a leaf for each would cost an intent, a commit and a mkdir
    // every few seconds.
    if (!leaf_) {
        TRY(journal_.intend(ledger::EntryKind::cgroup_session,
                            driver::resource_name(ledger::EntryKind::cgroup_session, binding.id,
                                                  generation_.request.cgroup_parent,
                                                  kHealthSession)));
        failpoint("health.intended");
        leaf_ = TRY(driver::create_session_leaf(plan, binding, kHealthSession));
        failpoint("effect.health-leaf");
    }
    session_ = std::make_unique<SessionStream>(
        TRY(open_session(generation_.launched->channel.get(), plan->resources.version, *leaf_)));
    // Opened here: no descriptor of anybody else's goes inside.
    const auto in = TRY(sys::open_file("/dev/null", O_RDONLY));
    const auto out = TRY(sys::open_file("/dev/null", O_WRONLY));
    const std::array<int, 3> stdio{in.get(), out.get(), out.get()};
    TRY_VOID(session_->send(TRY(describe_check(plan->process, health_)), stdio));
    watch_ = TRY(loop_.when_readable(session_->fd(), [this] { on_message(); }));
    // On top of the check's own time-out, which PID 1 enforces.
    late_ = TRY(loop_.after(health_.timeout + kSilence, [this] {
        late_.reset();
        conclude(false, "sandbox-init did not answer");
    }));
    return {};
}

void HealthCheck::on_message()
{
    // Bounded, and the loop comes again: a peer that talks without end must not hold it.
    for (int handled = 0; handled < kMostCheckMessages; ++handled) {
        auto message = session_->receive(sys::Deadline::after(Millis{0}));
        if (!message && message.error().code() == Code::deadline_exceeded) return;
        if (!message) return conclude(false, message.error().message());
        if (!*message) return conclude(false, "sandbox-init closed the session");
        if (take(**message)) return;
    }
}

bool HealthCheck::take(const wire::SessionMessage& message)
{
    if (const auto* report = std::get_if<wire::Confined>(&message)) {
        if (is_confined(*report, (*generation_.plan)->process)) {
            if (const auto sent = session_->send(wire::Go{}); sent) return false;
        }
        conclude(false, "the check is not confined as planned");
        return true;
    }
    if (const auto* refusal = std::get_if<wire::ErrorMessage>(&message)) {
        conclude(false, channel::to_error(*refusal).message());
        return true;
    }
    const auto* exit = std::get_if<wire::Exit>(&message);
    if (exit == nullptr) return false;
    switch (exit->outcome) {
    case wire::ExitOutcome::exited:
        conclude(exit->value == 0, "exit status " + std::to_string(exit->value));
        break;
    case wire::ExitOutcome::signaled:
        conclude(false, "signal " + std::to_string(exit->value));
        break;
    case wire::ExitOutcome::timed_out:
        conclude(false, "no end within " + format_duration(health_.timeout));
        break;
    case wire::ExitOutcome::failed_to_start:
        conclude(false, "cannot execute " + health_.argv.front() + ": " + strerror(exit->value));
        break;
    }
    return true;
}

void HealthCheck::conclude(bool passed, std::string detail)
{
    abandon();
    // What a check left running would pile up.
    static_cast<void>(driver::kill_all(generation_.request.binding.cgroup + "/workload/" +
                                       std::string(kHealthSession)));
    // A verdict needs `retries` failures in a row; becoming healthy needs one success.
    const auto changed = passed ? record_.passed() : record_.failed(std::move(detail));
    // A look at a health that is not yet told is a moment old, nothing worse.
    static_cast<void>(save());
    if (changed) {
        static_cast<void>(journal_.tell(audit::HealthChanged{
            std::string(to_string(*changed)), record_.failures(), record_.detail()}));
        failpoint("health.changed");
        changed_(*changed);
    }
    again();
}

Status HealthCheck::save() const
{
    const auto folder = TRY(sys::open_dir(generation_.request.binding.run_dir.str()));
    const canon::Json json{{"health", to_string(record_.health())},
                           {"failures", record_.failures()},
                           {"detail", record_.detail()}};
    // By rename: a reader never sees half a file. Not synced: it is only true while this shim
    // lives.
    const std::string next = std::string(kHealthName) + ".new";
    auto file = TRY(
        sys::open_at2(folder.get(), next, O_WRONLY | O_CREAT | O_TRUNC, 0600, sys::kBeneath));
    TRY_VOID(sys::write_all(file.get(), TRY(canon::serialize(json)) + "\n"));
    return sys::rename_at(folder.get(), next, folder.get(), kHealthName);
}

}  // namespace sandbox::shim
