// SPDX-License-Identifier: Apache-2.0
#include "supervisor/exec.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>

#include "base/failpoint.hpp"
#include "channel/door.hpp"
#include "channel/frame_stream.hpp"
#include "driver/bootstrap.hpp"
#include "driver/evidence.hpp"
#include "driver/rootless.hpp"
#include "shim/leaf_pool.hpp"
#include "shim/sessions.hpp"
#include "supervisor/attach.hpp"
#include "supervisor/console_relay.hpp"
#include "supervisor/shim_namespace.hpp"
#include "sys/file.hpp"

namespace sandbox::supervisor {

namespace {

using Session = channel::FrameStream<wire::SessionMessage>;

constexpr Millis kReply{10'000};       // docs/protocol.md: reply deadline
// After EXIT the shim ends what is left in the session's leaf, and its output with it.
constexpr Millis kLastOutput{2'000};
constexpr int kPipeBytes = 1 << 20;    // /proc/sys/fs/pipe-max-size as a user may have it

// Our ends of what the session has as 0, 1 and 2.
struct Pipes {
    sys::UniqueFd in;
    sys::UniqueFd out;
    sys::UniqueFd err;
    std::array<sys::UniqueFd, 3> theirs;
};

Result<Pipes> make_pipes(const Console& console)
{
    Pipes pipes;
    // Fewer wake-ups for much output. Refused beyond pipe-user-pages-soft, pipe(7): then 64 KiB do.
    const auto wide = [](int fd) { static_cast<void>(fcntl(fd, F_SETPIPE_SZ, kPipeBytes)); };
    if (console.in >= 0) {
        sys::Pipe in = TRY(sys::make_pipe());
        wide(in.write.get());
        TRY_VOID(sys::set_nonblocking(in.write.get()));
        pipes.theirs[0] = std::move(in.read);
        pipes.in = std::move(in.write);
    } else {
        // /dev/null opened by us: no descriptor of the caller's goes inside (design, law 11).
        pipes.theirs[0] = TRY(sys::open_file("/dev/null", O_RDONLY));
    }
    sys::Pipe out = TRY(sys::make_pipe());
    sys::Pipe err = TRY(sys::make_pipe());
    wide(out.read.get());
    // Our ends only: what the session has as 0, 1 and 2 stays blocking, as programs expect.
    TRY_VOID(sys::set_nonblocking(out.read.get()));
    TRY_VOID(sys::set_nonblocking(err.read.get()));
    pipes.theirs[1] = std::move(out.write);
    pipes.theirs[2] = std::move(err.write);
    pipes.out = std::move(out.read);
    pipes.err = std::move(err.read);
    return pipes;
}

// From STARTED to EXIT, and to the last byte of output.
class Foreground {
public:
    Foreground(const Console& console, Session& session, Pipes pipes)
        : console_(console), session_(session), pipes_(std::move(pipes))
    {
    }

    Result<wire::Exit> run()
    {
        // Output that nobody wants still has to go somewhere.
        // Without it the pipe would fill and the program stop.
        if (console_.out < 0 || console_.err < 0)
            null_ = TRY(sys::open_file("/dev/null", O_WRONLY));
        if (pipes_.in.valid()) in_.emplace(console_.in, pipes_.in.get());
        out_.emplace(pipes_.out.get(), console_.out >= 0 ? console_.out : null_.get());
        err_.emplace(pipes_.err.get(), console_.err >= 0 ? console_.err : null_.get());
        while (!exit_ || !is_drained()) TRY_VOID(turn());
        return *exit_;
    }

private:
    bool is_drained() const
    {
        if (out_->is_over() && err_->is_over()) return true;
        // Something holds the pipes open that its end did not end.
        return out_->is_dry() && err_->is_dry() && late_.passed();
    }

    Status turn()
    {
        const int steering = console_.steering != nullptr ? console_.steering->fd() : -1;
        // After EXIT nothing of the stream matters any more, and its end must not wake us.
        std::array<pollfd, 5> wait{{{exit_ ? -1 : session_.fd(), POLLIN, 0},
                                    {steering, POLLIN, 0},
                                    in_ ? in_->wait() : pollfd{-1, 0, 0},
                                    out_->wait(),
                                    err_->wait()}};
        if (poll(wait.data(), wait.size(), exit_ ? late_.poll_timeout() : -1) < 0) {
            return errno == EINTR ? Status{} : fail_errno("poll");
        }
        // Output first: EXIT may already stand behind it.
        if (wait[3].revents != 0) step(*out_, pipes_.out);
        if (wait[4].revents != 0) step(*err_, pipes_.err);
        if (wait[2].revents != 0) {
            in_->step();
            if (in_->is_over()) close_input();
        }
        if (wait[1].revents != 0) steer();
        if (wait[0].revents != 0) return hear();
        return {};
    }

    // A reader that went away is told to the program as it would be without us: by EPIPE.
    static void step(Relay& relay, sys::UniqueFd& pipe)
    {
        relay.step();
        if (relay.is_over()) pipe.reset();
    }

    void close_input()
    {
        // Ends both the relay and the pipe: the program reads its end of file.
        in_.reset();
        pipes_.in.reset();
    }

    void steer()
    {
        while (const auto steer = console_.steering->next()) {
            // There is no size without a terminal, and no leaving: the session ends with its
            // client.
            if (steer->kind != Steer::Kind::signal || exit_) continue;
            // A sandbox-init that does not read loses a signal, not us our loop.
            const auto frame = wire::encode(wire::Signal{static_cast<std::uint8_t>(steer->signal)});
            if (frame)
                static_cast<void>(
                    send(session_.fd(), frame->data(), frame->size(), MSG_DONTWAIT | MSG_NOSIGNAL));
        }
    }

    Status hear()
    {
        while (!exit_) {
            // Never waits: a frame that is half here stays in the stream's buffer until the rest
            // comes.
            auto message = session_.receive(sys::Deadline::after(Millis{0}));
            if (!message && message.error().code() == Code::deadline_exceeded) return {};
            const auto& heard = TRY(std::move(message));
            if (!heard) return fail(Code::unavailable, "the sandbox ended under the session");
            if (const auto* refusal = std::get_if<wire::ErrorMessage>(&*heard))
                return fail(channel::to_error(*refusal));
            const auto* exit = std::get_if<wire::Exit>(&*heard);
            if (exit == nullptr) continue;
            exit_ = *exit;
            late_ = sys::Deadline::after(kLastOutput);
            // Nobody reads it any more; it would only keep the relay busy.
            close_input();
        }
        return {};
    }

    const Console& console_;
    Session& session_;
    Pipes pipes_;
    sys::UniqueFd null_;
    std::optional<Relay> in_;
    std::optional<Relay> out_;
    std::optional<Relay> err_;
    std::optional<wire::Exit> exit_;
    sys::Deadline late_ = sys::Deadline::never();
};

Status read_evidence(const Target& target, std::uint32_t slot, const wire::Confined& report)
{
    const int pid = TRY(driver::find_session_pid(
        target.plan, target.binding, shim::LeafPool::name_of(slot), static_cast<int>(report.pid)));
    for (const driver::Evidence& item : TRY(driver::observe_session(
             target.plan, target.binding, target.sandbox.pid1->pid, pid, report))) {
        // One control that does not hold is enough: GO is never sent, and the session has not run.
        if (item.held) continue;
        return fail(Code::denied, "control " + item.name +
                                      " does not hold in the session: planned " + item.planned +
                                      ", observed " + item.observed);
    }
    return {};
}

// What the kernel says of the session's first process, before it is let go.
Status witness(const Target& target, std::uint32_t slot, const wire::Confined& report)
{
    if (!target.sandbox.pid1) return fail(Code::conflict, "PID 1 of the sandbox is not known");
    // Behind a guest's wall nothing is seen from here, and nothing rests on what is told.
    if (target.plan->microvm) return {};
    const auto look = [&] { return read_evidence(target, slot, report); };
    if (!driver::is_rootless(target.plan.content())) return look();
    if (!target.sandbox.shim) return fail(Code::conflict, "the sandbox's shim is not known");
    return in_namespace_of(*target.sandbox.shim, look);
}

Result<wire::SessionMessage> next_message(Session& session)
{
    auto message = TRY(session.receive(sys::Deadline::after(kReply)));
    if (!message) return fail(Code::unavailable, "the sandbox ended before the session began");
    if (const auto* refusal = std::get_if<wire::ErrorMessage>(&*message))
        return fail(channel::to_error(*refusal));
    return std::move(*message);
}

std::string why_not_executed(const ExecRequest& request, int errnum)
{
    return "cannot execute " + escaped(request.argv.front()) + ": " + strerror(errnum);
}

// The name by which its log and `kill --session` know it: "s" and the number that the door
// assigned.
SessionResult result_of(const ExecRequest& request, std::uint32_t number, const wire::Exit& exit)
{
    SessionResult result;
    result.session = "s" + std::to_string(number);
    result.exit = shim::exit_of(exit);
    result.exit_status = result.exit->code;
    if (exit.outcome == wire::ExitOutcome::failed_to_start)
        result.why = why_not_executed(request, exit.value);
    return result;
}

}  // namespace

Result<wire::Open> describe_session(const Target& target, const ExecRequest& request)
{
    const plan::ProcessPlan& process = target.plan->process;
    if (request.argv.empty()) return fail(Code::invalid_argument, "a session needs a command");
    wire::Open open = driver::exec_open(target.plan, request.argv);
    // A user other than the plan's would need controls that the plan does not have.
    if (request.user && (request.user->uid != process.uid || request.user->gid != process.gid)) {
        return fail(Code::denied,
                    "user " + std::to_string(request.user->uid) + ":" +
                        std::to_string(request.user->gid) + " is not the plan's: sessions run as " +
                        std::to_string(process.uid) + ":" + std::to_string(process.gid) +
                        "; set process.user in the profile");
    }
    if (!request.cwd.empty() && request.cwd.front() != '/')
        return fail(Code::invalid_argument, "a working directory is absolute: " + request.cwd);
    // Checked for shape only: whether it exists is inside, and the session says so.
    if (!request.cwd.empty()) open.cwd = request.cwd;
    open.env.assign(request.env.begin(), request.env.end());
    if (request.timeout) {
        // The wire has 32 bits of milliseconds, which are 49 days.
        if (request.timeout->count() < 1 || request.timeout->count() > UINT32_MAX)
            return fail(Code::invalid_argument, "a time-out is 1 ms to 49 days");
        open.timeout_ms = static_cast<std::uint32_t>(request.timeout->count());
    }
    open.stdio = wire::SessionStdio::descriptors;
    if (request.terminal) {
        open.kind = wire::SessionKind::pty;
        // 64 bytes: the wire's bound for a terminal's name (docs/protocol.md, OPEN).
        open.term = request.console.term.empty() ? "xterm" : request.console.term.substr(0, 64);
        open.rows = request.console.rows;
        open.cols = request.console.cols;
    }
    // Encoded once to learn whether it fits its class, before a door is knocked at.
    TRY_WITH(wire::encode(open), "the command cannot be sent");
    return open;
}

Result<SessionResult> exec_through_door(const Target& target, const ExecRequest& request,
                                        const std::function<Status()>& unchanged)
{
    const wire::Open open = TRY(describe_session(target, request));
    Pipes pipes = TRY(make_pipes(request.console));
    std::uint32_t assigned = 0;
    Session session(TRY(channel::connect(target.binding.run_dir.str() + "/" + channel::kDoorName,
                                         static_cast<std::uint32_t>(wire::Port::session),
                                         sys::Deadline::after(kReply), &assigned)));
    const channel::Assigned place = channel::take_apart(assigned);
    failpoint("exec.connected");
    const std::array<int, 3> stdio{pipes.theirs[0].get(), pipes.theirs[1].get(),
                                   pipes.theirs[2].get()};
    // A refusal may close the stream before all of OPEN is through: what it says is read first.
    const Status sent = session.send(open, stdio);
    if (!sent && sent.error().errnum() != EPIPE && sent.error().errnum() != ECONNRESET)
        return fail(sent.error());
    const auto first = TRY(next_message(session));
    // Closed as soon as the other side has them: our copies would keep the pipes from ending.
    pipes.theirs = {};
    if (const auto* exit = std::get_if<wire::Exit>(&first))
        return result_of(request, place.session, *exit);
    const auto* confined = std::get_if<wire::Confined>(&first);
    if (confined == nullptr) return fail(Code::corrupt, "sandbox-init answered OPEN otherwise");
    // Between these two and GO lies everything that must hold: evidence first, then that the
    // sandbox is the same generation, then the first instruction.
    TRY_VOID(witness(target, place.slot, *confined));
    TRY_VOID(unchanged());
    failpoint("exec.before-go");
    TRY_VOID(session.send(wire::Go{}));
    Foreground foreground(request.console, session, std::move(pipes));
    return result_of(request, place.session, TRY(foreground.run()));
}

Result<SessionResult> exec_through_shim(const Target& target, const ExecRequest& request,
                                        ShimConnection shim)
{
    const wire::Open open = TRY(describe_session(target, request));
    const bool attached = request.attach == Attach::foreground;
    const wire::ByteVector frame = TRY(wire::encode(open));
    // Not in the packet: an OPEN may be 1 MiB, more than one seqpacket takes. Sealed, so the shim
    // reads what was checked.
    const auto memfd = TRY(
        sys::sealed_memfd("open", {reinterpret_cast<const char*>(frame.data()), frame.size()}));
    const std::array<int, 1> fds{memfd.get()};
    TRY_VOID(shim.send(shim::OpenSession{request.terminal, attached, open.rows, open.cols}, fds));
    auto answer = TRY(await_session(shim));
    // A shim takes so many clients at a time: one at a terminal needs its stream alone.
    {
        [[maybe_unused]] const ShimConnection done(std::move(shim));
    }
    if (auto* ended = std::get_if<shim::Ended>(&answer.reply)) {
        SessionResult result;
        result.exit = ended->exit;
        result.exit_status = ended->exit.code;
        result.why = ended->why;
        return result;
    }
    const auto& opened = std::get<shim::SessionOpen>(answer.reply);
    SessionResult result;
    result.session = opened.session;
    result.exit_status = 0;
    // A detached session is the shim's; its output is in its log.
    if (!attached) return result;
    return attend_terminal(std::move(answer.stream), request.console, opened.offset,
                           std::move(result));
}

}  // namespace sandbox::supervisor
