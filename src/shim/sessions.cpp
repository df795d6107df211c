// SPDX-License-Identifier: Apache-2.0
#include "shim/sessions.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/failpoint.hpp"
#include "canon/canon.hpp"
#include "channel/door.hpp"
#include "driver/evidence.hpp"
#include "shim/session_record.hpp"
#include "sys/file.hpp"

namespace sandbox::shim {

namespace {

// Sessions of a tool call come in bursts: ten of them then cost one sync.
constexpr Millis kWriteDelay{100};   // audit lines of sessions share commits
constexpr Millis kClearAgain{50};    // a leaf whose processes take their time to die
// Beyond it the oldest are forgotten: a detached session nobody asks about must not stay for ever.
constexpr std::size_t kMostEnded = 64;  // whose exit status can still be asked for
constexpr int kUnknownEnd = 255;  // what is reported of an end that PID 1 lied about
constexpr int kBySignal = 128;
constexpr int kOutOfTime = 124;

}  // namespace

ledger::Exit exit_of(const wire::Exit& message)
{
    using ledger::ExitReason;
    ledger::Exit exit;
    if (!wire::is_exit_value(message.outcome, message.value)) {
        exit.code = kUnknownEnd;
        exit.reason = ExitReason::unknown;
        return exit;
    }
    switch (message.outcome) {
    case wire::ExitOutcome::exited:
        exit.code = message.value & 0xFF;
        exit.reason = ExitReason::exited;
        break;
    case wire::ExitOutcome::signaled:
        exit.signal = message.value;
        exit.code = kBySignal + message.value;
        exit.reason = ExitReason::signal;
        break;
    case wire::ExitOutcome::timed_out:
        exit.signal = message.value;
        exit.code = kOutOfTime;
        exit.reason = ExitReason::timeout;
        break;
    case wire::ExitOutcome::failed_to_start:
        exit.code = message.value == ENOENT ? 127 : 126;
        exit.reason = ExitReason::exited;
        break;
    }
    return exit;
}

Sessions::Sessions(Generation& generation, Journal& journal, Loop& loop,
                   std::function<void()> active)
    : generation_(generation), journal_(journal), loop_(loop), active_(std::move(active)),
      leaves_(*generation.plan, generation.request.binding, generation.request.cgroup_parent,
              journal)
{
}

Sessions::~Sessions()
{
    if (write_timer_) loop_.forget(*write_timer_);
    // Each closes its stream: PID 1 then ends what is left of it.
    while (!sessions_.empty()) drop(sessions_.begin()->first);
}

Status Sessions::admit(sys::UniqueFd stream)
{
    auto session = std::make_shared<Session>();
    session->number = next_++;
    session->name = "s" + std::to_string(session->number);
    session->from_door = true;
    session->started = TRY(ledger::now()).utc;
    // The leaf first: without one nothing may run, and no session is told of.
    LeafPool::Leaf leaf = TRY(leaves_.make());
    session->slot = leaf.slot;
    // Known before it is passed on: PID 1 may speak of it at once.
    sessions_.emplace(session->number, session);
    const std::string ok = channel::connected_line(
        channel::assigned_port(session->number, leaf.slot));
    // OK before PASS: afterwards the stream is the guest's, and its bytes would mix with ours.
    Status passed = channel::send_bytes(stream.get(), std::as_bytes(std::span(ok)), {});
    if (passed) {
        passed = pass_session(generation_.launched->channel.get(),
                              (*generation_.plan)->resources.version,
                              {session->name, std::move(leaf.joins)}, std::move(stream));
    }
    failpoint("session.passed");
    if (!passed) retire_leaf(session);
    if (!passed) drop(session->number);
    return passed;
}

Sessions::Shared Sessions::find(const std::string& name) const
{
    for (const auto& [number, session] : sessions_) {
        if (session->name == name) return session;
    }
    return nullptr;
}

// Everything here is sandbox-init's word: it can only speak of sessions that were passed to it, and
// each thing once.
void Sessions::told(const wire::InitMessage& message)
{
    if (const auto* opened = std::get_if<wire::SessionOpened>(&message)) {
        const Shared session = find(opened->session);
        // Only the first report counts; a name that was not passed on is nobody's.
        if (!session || session->inner_pid != 0) return;
        session->inner_pid = opened->pid;
        if (guest_kills_) session->guest_kills_before = guest_kills_();
        session->terminal = session->terminal || opened->kind == wire::SessionKind::pty;
        write_down(audit::SessionOpened{session->name, canon::to_digest(opened->argv_digest),
                                        opened->uid, opened->gid});
        active_();
    } else if (const auto* over = std::get_if<wire::SessionEnded>(&message)) {
        const Shared session = find(over->session);
        if (!session || !session->slot) return;
        // One that we opened has its own stream, which says more.
        if (session->from_door) session->exit = wire::Exit{over->outcome, over->value};
        retire_leaf(session);
        if (session->from_door) {
            settle_end(*session);
            drop(session->number);
        }
    } else if (const auto* refusal = std::get_if<wire::PassRefused>(&message)) {
        const Shared session = find(refusal->session);
        if (!session || !session->slot) return;
        retire_leaf(session);
        if (session->from_door) drop(session->number);
    }
}

// The slot stays taken until the kernel has let go of the leaf: a session born into it would be
// killed with the last one's rest.
void Sessions::retire_leaf(const Shared& session)
{
    if (!session->slot) return;
    const std::uint32_t slot = *session->slot;
    session->slot.reset();
    // Only a SIGKILL can be the OOM killer's; asking the cgroup each time would cost a few opens.
    const bool killed = session->exit && session->exit->value == SIGKILL;
    if (killed || !session->from_door)
        session->oom_kills = std::max(session->oom_kills, leaves_.oom_kills(slot));
    if (leaves_.clear(slot)) return;
    // Keeps itself alive from turn to turn, and ends with the last one.
    const auto again = std::make_shared<std::function<void()>>();
    *again = [this, slot, weak = std::weak_ptr(again)] {
        const auto self = weak.lock();
        if (leaves_.clear(slot) || !self) return;
        static_cast<void>(loop_.after(kClearAgain, [self] { (*self)(); }));
    };
    static_cast<void>(loop_.after(kClearAgain, [again] { (*again)(); }));
}

void Sessions::settle_end(Session& session)
{
    if (session.settled || !session.exit) return;
    session.settled = true;
    ledger::Exit exit = exit_of(*session.exit);
    // Of the whole guest meanwhile: it does not tell whose they were.
    if (guest_kills_ && exit.signal == SIGKILL)
        session.oom_kills = guest_kills_() - session.guest_kills_before;
    exit.oom_kills = session.oom_kills;
    // A SIGKILL that we did not send, and a count that grew: the kernel ran out of memory for it.
    if (exit.oom_kills > 0 && exit.signal == SIGKILL && exit.reason == ledger::ExitReason::signal)
        exit.reason = ledger::ExitReason::oom;
    session.result = exit;
    if (session.inner_pid == 0) return;  // nothing of it ever ran
    audit::Exited event;
    event.session = session.name;
    if (exit.signal == 0)
        event.code = exit.code;
    else
        event.signal = exit.signal;
    event.reason = ledger::to_string(exit.reason);
    event.oom_kills = exit.oom_kills;
    write_down(std::move(event));
    active_();
}

void Sessions::write_down(audit::Body body)
{
    unwritten_.push_back(std::move(body));
    // Without a timer they wait for the next one, or for settle() at the end.
    if (write_timer_) return;
    const auto timer = loop_.after(kWriteDelay, [this] {
        write_timer_.reset();
        static_cast<void>(settle());
    });
    if (timer) write_timer_ = *timer;
}

Status Sessions::settle()
{
    if (write_timer_) loop_.forget(*write_timer_);
    write_timer_.reset();
    if (unwritten_.empty()) return {};
    return journal_.write_down(std::exchange(unwritten_, {}));
}

void Sessions::drop(std::uint32_t number)
{
    const auto it = sessions_.find(number);
    if (it == sessions_.end()) return;
    const Shared session = it->second;
    if (session->stream_watch) loop_.forget(*session->stream_watch);
    if (session->log_watch) loop_.forget(*session->log_watch);
    session->stream_watch.reset();
    session->log_watch.reset();
    sessions_.erase(it);
}

// By number, which is by age.
void Sessions::drop_old()
{
    auto ended = std::count_if(sessions_.begin(), sessions_.end(),
                               [](const auto& item) { return item.second->result.has_value(); });
    for (auto it = sessions_.begin();
         it != sessions_.end() && ended > static_cast<std::ptrdiff_t>(kMostEnded);) {
        const auto next = std::next(it);
        if (it->second->result) {
            // Forgotten with all there is of it: detached sessions must not fill the disk.
            if (!it->second->logs.empty())
                static_cast<void>(sys::remove_tree_at(AT_FDCWD, it->second->logs));
            drop(it->first);
            --ended;
        }
        it = next;
    }
}

bool Sessions::any_at_work() const
{
    return std::ranges::any_of(sessions_, [](const auto& one) { return !one.second->exit; });
}

int Sessions::host_pid(const Session& session) const
{
    // A guest's processes are not the host's: its numbers are somebody else's here.
    if ((*generation_.plan)->microvm) return 0;
    // Only from its leaf: a pid that the sandbox names is a number inside.
    if (!session.slot || session.inner_pid == 0) return 0;
    return driver::find_session_pid(*generation_.plan, generation_.request.binding,
                                    LeafPool::name_of(*session.slot),
                                    static_cast<int>(session.inner_pid))
        .value_or(0);
}

SessionList Sessions::list(std::uint32_t after)
{
    SessionList list;
    for (auto it = sessions_.upper_bound(after); it != sessions_.end(); ++it) {
        if (list.rows.size() == kMostRows) {
            list.more = true;
            break;
        }
        const Session& session = *it->second;
        SessionRow row;
        row.number = session.number;
        row.argv = session.argv;
        row.terminal = session.terminal;
        row.attached = session.from_door || !session.waiters.empty() ||
                       (session.relay && session.relay->is_attached());
        row.started = session.started;
        row.bytes = session.relay ? session.relay->bytes() : 0;
        row.exit = session.result;
        // Of a guest the number inside, for who works inside.
        const bool guest = (*generation_.plan)->microvm.has_value();
        if (!row.exit)
            row.pid = guest ? static_cast<int>(session.inner_pid & INT32_MAX) : host_pid(session);
        list.rows.push_back(std::move(row));
    }
    return list;
}

Status Sessions::signal(const SignalSession& request)
{
    const Shared session = find(request.session);
    if (!session) return fail(Code::not_found, "there is no session " + request.session);
    if (session->exit || session->result)
        return fail(Code::conflict, "session " + request.session + " has ended");
    static_cast<void>(journal_.acted("kill", request.session + ": " + strsignal(request.signal)));
    if (!session->from_door) {
        send_signal(*session, request.signal);
        return {};
    }
    // Its stream is the client's.
    if (guest_signal_) return guest_signal_(session->name, request.signal);
    // By the kernel then, to the leader alone.
    const int pid = host_pid(*session);
    if (pid == 0) return fail(Code::conflict, "session " + request.session + " has no process");
    return TRY(sys::Pidfd::open(pid)).send_signal(request.signal);
}

bool Sessions::serve(const Request& request, std::vector<sys::UniqueFd> fds, const Answer& answer)
{
    if (const auto* open_request = std::get_if<OpenSession>(&request)) {
        open(*open_request, fds.empty() ? sys::UniqueFd() : std::move(fds.front()), answer);
    } else if (const auto* attach_request = std::get_if<AttachSession>(&request)) {
        attach(*attach_request, answer);
    } else if (const auto* list_request = std::get_if<ListSessions>(&request)) {
        answer(list(list_request->after), -1);
    } else if (const auto* signal_request = std::get_if<SignalSession>(&request)) {
        const Status done = signal(*signal_request);
        answer(done ? Reply(Accepted{}) : Reply(Rejected{done.error().message()}), -1);
    } else {
        return false;
    }
    return true;
}

}  // namespace sandbox::shim
