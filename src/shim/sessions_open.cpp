// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/failpoint.hpp"
#include "driver/evidence.hpp"
#include "driver/resources.hpp"
#include "shim/session_record.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

// Sessions that the shim opens itself: terminals and detached ones, from OPEN to their end, and the
// attachments to them.
namespace sandbox::shim {

namespace {

// OPEN's ceiling is 1 MiB, docs/protocol.md.
constexpr std::size_t kMostOpenBytes = wire::kMaxOpen + wire::kHeaderSize;
constexpr int kRoomForOpen = 4 << 20;  // so that a whole OPEN fits into the socket at once
constexpr int kMessagesATurn = 64;
constexpr std::size_t kMostWaiters = 64;
// The log of one detached session, beside the log of the profile's process.
constexpr LogLimits kSessionLog{4ULL << 20, 2};

Result<wire::Open> decode_open(int memfd)
{
    if (memfd < 0) return fail(Code::invalid_argument, "no OPEN came with the request");
    // Sealed, so that what is decoded here is what is sent on.
    if (!TRY(sys::is_sealed(memfd))) return fail(Code::invalid_argument, "OPEN is not sealed");
    const std::string bytes = TRY(sys::read_file(sys::fd_path(memfd), kMostOpenBytes));
    auto input = std::as_bytes(std::span(bytes));
    wire::FrameDecoder decoder(wire::Port::session, wire::Direction::to_guest);
    auto frame = TRY(decoder.next(input));
    // One frame and nothing behind it: a second one would reach the guest unread.
    if (!frame || !input.empty()) return fail(Code::invalid_argument, "OPEN is not one frame");
    auto message = TRY(wire::decode_as<wire::SessionMessage>(wire::Direction::to_guest, frame->type,
                                                             frame->payload));
    return std::get<wire::Open>(std::move(message));
}

// A guest's terminal is in the guest. What does not fit now is said by the next change.
void tell_window(const SessionStream& stream, Window window)
{
    const auto frame = wire::encode(wire::Resize{window.rows, window.cols});
    if (!frame) return;
    static_cast<void>(send(stream.fd(), frame->data(), frame->size(), MSG_DONTWAIT | MSG_NOSIGNAL));
}

std::vector<std::string> shortened(const std::vector<std::string>& argv)
{
    std::vector<std::string> list;
    for (const std::string& word : argv) {
        if (list.size() == kMostRowArguments) break;
        // For people in a list: escaped, because a terminal shows it.
        list.push_back(escaped(word).substr(0, kMostArgumentBytes));
    }
    return list;
}

}  // namespace

void Sessions::open(const OpenSession& request, sys::UniqueFd memfd, const Answer& answer)
{
    auto open = decode_open(memfd.get());
    if (!open) return answer(Rejected{open.error().message()}, -1);
    auto session = prepare(request, std::move(*open));
    if (!session) return answer(Rejected{session.error().message()}, -1);
    // Answered later, when the program runs or does not: see started(), refused() and ended().
    (*session)->answer = answer;
    (*session)->attach_at_start = request.attach;
}

Result<Sessions::Shared> Sessions::prepare(const OpenSession& request, wire::Open open)
{
    auto session = std::make_shared<Session>();
    session->number = next_++;
    session->name = "s" + std::to_string(session->number);
    session->terminal = request.terminal;
    session->argv = shortened(open.argv);
    session->program = open.argv.front();
    session->uid = open.uid;
    session->started = TRY(ledger::now()).utc;
    // Set here, not believed: the client's OPEN says what to run, not how.
    open.kind = request.terminal ? wire::SessionKind::pty : wire::SessionKind::exec;
    open.stdio = wire::SessionStdio::descriptors;
    open.gate = true;

    std::array<sys::UniqueFd, 3> stdio;
    std::array<int, 3> numbers{};
    if (request.terminal) {
        open.rows = request.rows;
        open.cols = request.cols;
        TRY_VOID(give_terminal(*session, request, open));
        numbers.fill(session->relay->slave());
    } else {
        stdio = TRY(give_log(*session));
        for (std::size_t i = 0; i < numbers.size(); ++i) numbers.at(i) = stdio.at(i).get();
    }
    LeafPool::Leaf leaf = TRY(leaves_.make());
    session->slot = leaf.slot;
    // Before the stream: its first message may come in this very turn.
    sessions_.emplace(session->number, session);
    const auto stream = [&]() -> Status {
        session->stream = std::make_unique<SessionStream>(TRY(shim::open_session(
            generation_.launched->channel.get(), (*generation_.plan)->resources.version,
            {session->name, std::move(leaf.joins)})));
        TRY_VOID(send_open(*session, open, numbers));
        session->stream_watch = TRY(loop_.when_readable(
            session->stream->fd(), [this, number = session->number] { on_stream(number); }));
        return {};
    }();
    failpoint("session.opened");
    if (stream) return session;
    retire_leaf(session);
    drop(session->number);
    return fail(stream.error());
}

Status Sessions::give_terminal(Session& session, const OpenSession& request, const wire::Open& open)
{
    const bool guest = (*generation_.plan)->microvm.has_value();
    const std::uint32_t number = session.number;
    TerminalRelay::Hooks hooks{[this, number](int signal) {
                                   const auto it = sessions_.find(number);
                                   if (it != sessions_.end()) send_signal(*it->second, signal);
                               },
                               [] {},
                               {}};
    if (guest)
        hooks.resized = [this, number](Window window) {
            const auto it = sessions_.find(number);
            if (it != sessions_.end() && it->second->stream && !it->second->exit)
                tell_window(*it->second->stream, window);
        };
    session.relay = std::make_unique<TerminalRelay>(
        loop_, guest ? TRY(make_remote_terminal()) : TRY(open_terminal(request, open)),
        std::move(hooks));
    return session.relay->begin();
}

Result<Terminal> Sessions::open_terminal(const OpenSession& request, const wire::Open& open)
{
    // Of PID 1's mount namespace, looked up once.
    if (!devpts_) devpts_.emplace(TRY(Devpts::of(generation_.launched->init_pid)));
    // Ids of the sandbox's range: the slave belongs to the session's user as the host sees it.
    const std::uint32_t base = generation_.request.binding.id_base;
    return devpts_->open(base + open.uid, base + open.gid, {request.rows, request.cols});
}

// Output into a log of its own; nothing to read.
Result<std::array<sys::UniqueFd, 3>> Sessions::give_log(Session& session)
{
    // Each generation counts its sessions anew.
    session.logs = generation_.request.binding.state_dir.str() + "/logs/sessions/" +
                   std::to_string(generation_.request.binding.generation) + "-" + session.name;
    TRY_VOID(sys::make_dirs(session.logs));
    // Intent before the fork; its identity right after.
    const std::uint64_t seq = TRY(journal_.intend(
        ledger::EntryKind::log_worker,
        driver::resource_name(ledger::EntryKind::log_worker, generation_.request.binding.id, "")));
    sys::Pipe out = TRY(sys::make_pipe());
    sys::Pipe err = TRY(sys::make_pipe());
    session.log = TRY(
        start_log_worker(session.logs, kSessionLog, {std::move(out.read), {}, Output::log_only},
                         {std::move(err.read), {}, Output::log_only}, generation_.log_marker));
    // With its identity known it is given time to drain, should all this end in disorder.
    TRY_VOID(journal_.seen(seq, ledger::encode(TRY(sys::identity_of(session.log->process.pid())))));
    session.log_entry = seq;
    TRY_VOID(watch_log(session));
    return std::array<sys::UniqueFd, 3>{TRY(sys::open_file("/dev/null", O_RDONLY)),
                                        std::move(out.write), std::move(err.write)};
}

Status Sessions::watch_log(Session& session)
{
    const std::uint32_t number = session.number;
    session.log_watch = TRY(
        loop_.when_readable(session.log->ended.get(), [this, number] { on_log_ended(number); }));
    return {};
}

// Also when it drained everything and left: then nobody follows, and the log is complete.
void Sessions::on_log_ended(std::uint32_t number)
{
    const auto it = sessions_.find(number);
    if (it == sessions_.end()) return;
    const Shared held = it->second;
    if (held->log_watch) loop_.forget(*held->log_watch);
    held->log_watch.reset();
    const auto followed = revive(*held->log, generation_.log_marker);
    if (followed && *followed && watch_log(*held)) {
        const auto identity = sys::identity_of(held->log->process.pid());
        if (identity) static_cast<void>(journal_.seen(held->log_entry, ledger::encode(*identity)));
        return;
    }
    held->log.reset();
    // EXIT only now: attached clients read the log, and it is complete.
    if (held->exit) tell_waiters(held->waiters, *held->exit);
}

// All at once or not at all: a sandbox-init that does not read must not hold the loop.
Status Sessions::send_open(Session& session, const wire::Open& open, std::array<int, 3> stdio)
{
    const wire::ByteVector frame = TRY(wire::encode(open));
    const int socket = session.stream->fd();
    const int room = kRoomForOpen;
    // Beyond wmem_max only with CAP_NET_ADMIN, socket(7); without it a long OPEN may be refused
    // below.
    if (setsockopt(socket, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0)
        static_cast<void>(setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &room, sizeof room));
    const std::string_view bytes(reinterpret_cast<const char*>(frame.data()), frame.size());
    // A refusal may close the stream before all of OPEN is through: what it says is read then.
    const auto is_closed = [](int problem) { return problem == EPIPE || problem == ECONNRESET; };
    if (const auto given = sys::send_fds(socket, bytes.substr(0, 1), stdio); !given)
        return is_closed(given.error().errnum()) ? Status{} : given;
    const ssize_t sent = send(socket, bytes.data() + 1, bytes.size() - 1,
                              MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == static_cast<ssize_t>(bytes.size() - 1) || (sent < 0 && is_closed(errno))) return {};
    return fail(Code::unavailable, "sandbox-init does not read the session");
}

void Sessions::on_stream(std::uint32_t number)
{
    const auto it = sessions_.find(number);
    if (it == sessions_.end()) return;
    const Shared session = it->second;
    for (int handled = 0; handled < kMessagesATurn; ++handled) {
        auto message = session->stream->receive(sys::Deadline::after(Millis{0}));
        if (!message && message.error().code() == Code::deadline_exceeded) return;
        if (message && *message) {
            if (!take(*session, **message)) continue;
        } else if (!session->exit) {
            // The stream broke without an EXIT: PID 1 is gone, and with it the session.
            ended(*session, {wire::ExitOutcome::signaled, SIGKILL});
        }
        if (session->stream_watch) loop_.forget(*session->stream_watch);
        session->stream_watch.reset();
        return;
    }
}

bool Sessions::take(Session& session, const wire::SessionMessage& message)
{
    if (const auto* confined = std::get_if<wire::Confined>(&message)) {
        const Status seen = witness(session, *confined);
        // GO only after the evidence: until then the child stands behind its gate.
        if (seen && session.stream->send(wire::Go{})) return false;
        refused(session, seen ? "sandbox-init went away" : seen.error().message());
        return true;
    }
    if (std::holds_alternative<wire::Started>(message)) {
        started(session);
        return false;
    }
    if (const auto* refusal = std::get_if<wire::ErrorMessage>(&message)) {
        refused(session, channel::to_error(*refusal).message());
        return true;
    }
    const auto* exit = std::get_if<wire::Exit>(&message);
    if (exit == nullptr) return false;
    ended(session, *exit);
    return true;
}

// As for the profile's process: what the kernel says, before the first instruction.
Status Sessions::witness(Session& session, const wire::Confined& report)
{
    session.inner_pid = report.pid;
    if (!session.slot) return fail(Code::conflict, "the session ended meanwhile");
    const plan::ExecutionPlan& plan = *generation_.plan;
    if (plan->microvm) return {};  // its PID 1 tells; nothing rests on it
    const driver::Binding& binding = generation_.request.binding;
    const int pid = TRY(driver::find_session_pid(plan, binding, LeafPool::name_of(*session.slot),
                                                 static_cast<int>(report.pid)));
    const auto evidence = TRY(
        driver::observe_session(plan, binding, generation_.launched->init_pid, pid, report));
    for (const driver::Evidence& item : evidence) {
        if (!item.held) {
            return fail(Code::denied, "control " + item.name + " does not hold: planned " +
                                          item.planned + ", observed " + item.observed);
        }
    }
    return {};
}

void Sessions::started(Session& session)
{
    // A client may have gone, or been answered, before.
    if (!session.answer) return;
    const Answer answer = std::exchange(session.answer, nullptr);
    SessionOpen reply{session.name, session.terminal, 0, session.logs};
    if (!session.attach_at_start || !session.relay) return answer(reply, -1);
    auto attached = session.relay->attach(std::nullopt);
    // Only now, so that the first byte it gets is the first there is.
    if (!attached) return answer(Rejected{attached.error().message()}, -1);
    reply.offset = attached->offset;
    answer(reply, attached->stream.get());
}

// Nothing of it has run: the leaf goes with the child behind its gate.
void Sessions::refused(Session& session, std::string why)
{
    if (session.answer) std::exchange(session.answer, nullptr)(Rejected{std::move(why)}, -1);
    const auto it = sessions_.find(session.number);
    if (it == sessions_.end()) return;
    const Shared held = it->second;
    retire_leaf(held);
    drop(held->number);
}

void Sessions::ended(Session& session, wire::Exit exit)
{
    session.exit = exit;
    // Before the leaf goes: its counters go with it.
    if (session.slot) session.oom_kills = leaves_.oom_kills(*session.slot);
    settle_end(session);
    if (session.relay) {
        // Our slave closes, so that the master comes to its end.
        session.relay->leader_gone();
        session.relay->tell_exit(exit);
    } else if (!session.log) {
        tell_waiters(session.waiters, exit);
    }
    if (session.answer) {
        const std::string why = exit.outcome == wire::ExitOutcome::failed_to_start
                                    ? "cannot execute " + escaped(session.program) + ": " +
                                          strerror(exit.value)
                                    : "it ended before it had started";
        std::exchange(session.answer, nullptr)(Ended{*session.result, why}, -1);
        const auto it = sessions_.find(session.number);
        if (it != sessions_.end()) {
            // Never ran: there is nothing to be listed or attached to.
            const Shared held = it->second;
            retire_leaf(held);
            drop(held->number);
        }
        return;
    }
    drop_old();
}

void Sessions::send_signal(Session& session, int signal)
{
    if (session.exit) return;
    // By the kernel, to the leader: PID 1 may not read its stream. What the leader leaves behind
    // goes with the leaf.
    if (signal == SIGKILL && session.slot && !session.from_door) {
        const int pid = host_pid(session);
        const auto leader = pid == 0 ? Result<sys::Pidfd>(fail(Code::not_found, ""))
                                     : sys::Pidfd::open(pid);
        if (leader && leader->send_signal(SIGKILL)) return;
    }
    const auto frame = wire::encode(wire::Signal{static_cast<std::uint8_t>(signal)});
    if (!frame || !session.stream) return;
    static_cast<void>(
        send(session.stream->fd(), frame->data(), frame->size(), MSG_DONTWAIT | MSG_NOSIGNAL));
}

void Sessions::tell_waiters(std::vector<sys::UniqueFd>& waiters, const wire::Exit& exit)
{
    const auto frame = wire::encode(exit);
    // A waiter that does not read loses EXIT, and sees the end of its stream all the same.
    for (const sys::UniqueFd& waiter : waiters) {
        if (frame)
            static_cast<void>(
                send(waiter.get(), frame->data(), frame->size(), MSG_DONTWAIT | MSG_NOSIGNAL));
    }
    waiters.clear();
}

void Sessions::attach(const AttachSession& request, const Answer& answer)
{
    const auto reject = [&](const Error& error) { answer(Rejected{error.message()}, -1); };
    if (request.session == kServiceSession) {
        if (const Status done = attach_service(request, answer); !done) reject(done.error());
        return;
    }
    const Shared session = find(request.session);
    // A session from the door is its client's stream; there is no second one.
    if (!session || session->from_door) {
        const std::string what = session ? "belongs to the client that opened it"
                                         : "is not here: 'sandboxctl sessions NAME' lists them";
        return reject({Code::not_found, "session " + escaped(request.session) + " " + what});
    }
    SessionOpen reply{session->name, session->terminal, 0, session->logs};
    if (session->relay) {
        const auto from = request.from < 0
                              ? std::nullopt
                              : std::optional(static_cast<std::uint64_t>(request.from));
        auto attached = session->relay->attach(from);
        if (!attached) return reject(attached.error());
        if (request.rows != 0) session->relay->set_window({request.rows, request.cols});
        reply.offset = attached->offset;
        return answer(reply, attached->stream.get());
    }
    auto pair = sys::socket_pair(sys::SocketType::stream);
    if (!pair) return reject(pair.error());
    // Those that hung up are only noticed here: nobody watches them.
    std::erase_if(session->waiters, [](const sys::UniqueFd& waiter) {
        return sys::poll_one(waiter.get(), POLLIN, sys::Deadline::after(Millis{0})).value_or(1) !=
               0;
    });
    if (session->waiters.size() >= kMostWaiters)
        return reject({Code::resource_exhausted, "too many are attached to it"});
    session->waiters.push_back(std::move(pair->first));
    answer(reply, pair->second.get());
    // It ended before anybody attached: EXIT at once.
    if (session->exit && !session->log) tell_waiters(session->waiters, *session->exit);
}

Status Sessions::attach_service(const AttachSession& request, const Answer& answer)
{
    SessionOpen reply{std::string(kServiceSession), service_ != nullptr, 0, {}};
    if (service_) {
        const auto from = request.from < 0
                              ? std::nullopt
                              : std::optional(static_cast<std::uint64_t>(request.from));
        const auto attached = TRY(service_->attach(from));
        if (request.rows != 0) service_->set_window({request.rows, request.cols});
        reply.offset = attached.offset;
        answer(reply, attached.stream.get());
        return {};
    }
    if ((*generation_.plan)->process.idle)
        return fail(Code::conflict, "this sandbox is idle: it has no main process to attach to");
    reply.logs = generation_.request.binding.state_dir.str() + "/logs";
    sys::SocketPair pair = TRY(sys::socket_pair(sys::SocketType::stream));
    // The oldest gives way: it is the one most likely gone.
    if (service_waiters_.size() >= kMostWaiters) service_waiters_.erase(service_waiters_.begin());
    service_waiters_.push_back(std::move(pair.first));
    answer(reply, pair.second.get());
    return {};
}

Status Sessions::begin_service()
{
    if (!generation_.terminal) return {};
    std::function<void(Window)> resized;
    if ((*generation_.plan)->microvm)
        resized = [this](Window window) {
            if (generation_.service && !service_exit_) tell_window(*generation_.service, window);
        };
    service_ = std::make_unique<TerminalRelay>(
        loop_, std::move(*generation_.terminal),
        TerminalRelay::Hooks{
            [this](int signal) {
                const auto frame = wire::encode(wire::Signal{static_cast<std::uint8_t>(signal)});
                if (!frame || !generation_.service) return;
                static_cast<void>(send(generation_.service->fd(), frame->data(), frame->size(),
                                       MSG_DONTWAIT | MSG_NOSIGNAL));
            },
            [this] {
                if (service_exit_ && service_drained_ && service_is_drained())
                    std::exchange(service_drained_, nullptr)();
            },
            std::move(resized)});
    generation_.terminal.reset();
    // On a host it was made with its size.
    if ((*generation_.plan)->microvm && generation_.request.rows != 0)
        service_->set_window({generation_.request.rows, generation_.request.cols});
    service_->log_into(std::move(generation_.terminal_log));
    // The client that came with the launch is attached from the first byte on.
    if (generation_.terminal_client.valid())
        TRY_VOID(service_->adopt(std::move(generation_.terminal_client)));
    return service_->begin();
}

void Sessions::service_ended(const wire::Exit& exit)
{
    service_exit_ = exit;
    if (service_) {
        service_->leader_gone();
        service_->tell_exit(exit);
    }
    // Without a terminal its log is drained by now, see Keeper::await_log().
    tell_waiters(service_waiters_, exit);
}

bool Sessions::service_is_drained() const { return !service_ || service_->is_drained(); }

}  // namespace sandbox::shim
