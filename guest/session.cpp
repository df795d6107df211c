// SPDX-License-Identifier: Apache-2.0
#include "guest/session.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "guest/argv_digest.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::guest {
namespace {

// Standard input, output and error.
constexpr std::size_t kStdioFds = 3;

// One buffer for every read of this single-threaded program: sessions need no memory while they are
// idle.
std::array<std::byte, kChunk> g_read_chunk;

bool again(int errnum) { return errnum == EAGAIN || errnum == EINTR; }

}  // namespace

Session::Session(std::unique_ptr<Stream> stream, std::string name, wire::LeafKind kind,
                 std::vector<sys::UniqueFd> leaf, const wire::Bootstrap& boot, Gatekeeper& gate)
    : boot_(boot), gate_(gate), name_(std::move(name)), stream_(std::move(stream)),
      leaf_kind_(kind), leaf_(std::move(leaf))
{
}

// Back-pressure on the input: while the program does not read, neither do we, and the peer's
// writes wait in the socket. A SIGNAL behind them waits as well; POWEROFF and the cgroup do not.
bool Session::reading() const noexcept
{
    return !peer_ended_ && state_ < State::draining && input_.size() < kHighWater;
}

void Session::watch(Poller& poller)
{
    // POLLHUP comes unasked when the peer has closed for good.
    const int wanted = (reading() ? POLLIN : 0) | (out_.empty() ? 0 : POLLOUT);
    stream_->watch(poller, static_cast<short>(wanted));
    at_report_ = report_.valid() ? poller.watch(report_.get(), POLLIN) : Poller::kNone;
    // Watched only with something to write: a closed reader would report POLLERR for ever.
    at_stdin_ = stdin_.valid() && !input_.empty() ? poller.watch(stdin_.get(), POLLOUT)
                                                  : Poller::kNone;
    // Back-pressure on the output: the program waits in its write, as with any slow reader.
    const bool room = out_.size() < kHighWater;
    at_stdout_ = stdout_.valid() && room ? poller.watch(stdout_.get(), POLLIN) : Poller::kNone;
    at_stderr_ = stderr_.valid() && room ? poller.watch(stderr_.get(), POLLIN) : Poller::kNone;
}

// Output before input: what a program said before its end is sent before its EXIT, and a peer that
// floods us cannot keep us from draining.
void Session::handle(const Poller& poller, std::int64_t now)
{
    if (poller.ready(at_report_) != 0) read_report();
    if (poller.ready(at_stdout_) != 0) read_output(stdout_, wire::Stdout::kType);
    if (poller.ready(at_stderr_) != 0) read_output(stderr_, wire::Stderr::kType);
    if (poller.ready(at_stdin_) != 0) write_input();
    const short stream = stream_->ready(poller);
    if ((stream & POLLIN) != 0 && reading()) read_stream();
    // Both directions gone: nobody can take the result, so the work ends too.
    if ((stream & (POLLHUP | POLLERR)) != 0 && (stream & POLLIN) == 0) {
        signal(SIGKILL);
        // Nobody can read it.
        out_.clear();
        state_ = State::done;
        return;
    }
    expire(now);
    if (state_ == State::draining) finish_if_drained();
    flush();
}

std::int64_t Session::deadline() const noexcept { return std::min(timeout_at_, silent_at_); }

void Session::read_stream()
{
    if (state_ == State::opening) {
        // The descriptors of stdio come with the first bytes of OPEN.
        const ssize_t count = stream_->read(g_read_chunk, &received_);
        if (count < 0 && again(errno)) return;
        // Closed with the session.
        if (count < 0 || received_.size() > kStdioFds)
            return refuse({wire::WireError::bad_payload, "descriptors", received_.size()});
        if (count == 0) return end();
        return take_bytes({g_read_chunk.data(), static_cast<std::size_t>(count)});
    }
    const ssize_t count = stream_->read(g_read_chunk, nullptr);
    if (count > 0) return take_bytes({g_read_chunk.data(), static_cast<std::size_t>(count)});
    if (count < 0 && again(errno)) return;
    end();
}

// The peer sends no more. Its receiving side may still be open (shutdown(2)): then this is only the
// end of the input; a full close shows as POLLHUP.
void Session::end()
{
    peer_ended_ = true;
    // It ended before it said what it wanted: nothing to run.
    if (state_ == State::opening) {
        state_ = State::closing;
        return;
    }
    input_ended_ = true;
    // Closes the program's input once all is written.
    write_input();
}

void Session::take_bytes(std::span<const std::byte> bytes)
{
    // One read may hold many frames; after a refusal the rest is not looked at.
    while (state_ < State::draining) {
        auto frame = decoder_.next(bytes);
        if (!frame) return refuse(frame.error());
        if (!*frame) return;
        auto message = wire::decode_as<wire::SessionMessage>(wire::Direction::to_guest,
                                                             (*frame)->type, (*frame)->payload);
        if (!message) return refuse(message.error());
        take(*message);
    }
}

void Session::take(const wire::SessionMessage& message)
{
    const bool frames = open_.stdio == wire::SessionStdio::frames;
    if (const auto* wanted = std::get_if<wire::Open>(&message)) {
        open(*wanted);
    } else if (std::holds_alternative<wire::Go>(message)) {
        // GO before CONFINED would let a careless host run what it has not looked at.
        if (state_ != State::gated)
            return refuse({wire::WireError::type_not_allowed, "GO without CONFINED", 0});
        pass_gate();
    } else if (const auto* input = std::get_if<wire::Stdin>(&message)) {
        // With descriptors of its own the session's input is not ours.
        if (!frames || input_ended_) return refuse({wire::WireError::type_not_allowed, "STDIN", 0});
        input_.append(input->bytes);
        write_input();
    } else if (std::holds_alternative<wire::StdinEof>(message)) {
        if (!frames || input_ended_ || terminal_)
            return refuse({wire::WireError::type_not_allowed, "STDIN_EOF", 0});
        input_ended_ = true;
        write_input();
    } else if (const auto* wanted_size = std::get_if<wire::Resize>(&message)) {
        resize(*wanted_size);
    } else if (const auto* closed = std::get_if<wire::CloseOutput>(&message)) {
        if (!frames || terminal_)
            return refuse({wire::WireError::type_not_allowed, "CLOSE_OUTPUT", 0});
        (closed->output == 1 ? stdout_ : stderr_).reset();
    } else if (const auto* wanted_signal = std::get_if<wire::Signal>(&message)) {
        signal(wanted_signal->signal);
    } else {
        refuse({wire::WireError::refused, "not for this kind of session", 0});
    }
}

void Session::open(wire::Open open)
{
    if (!gate_.provisioned)
        return refuse({wire::WireError::not_provisioned, "OPEN before PROVISION", 0});
    if (!gate_.ready) return refuse({wire::WireError::not_ready, "OPEN before READY", 0});
    // Before what follows, which looks at its kind.
    open_ = std::move(open);
    if (is_service() && gate_.service_opened)
        return refuse({wire::WireError::refused, "the service was started already", 0});
    const bool descriptors = open_.stdio == wire::SessionStdio::descriptors;
    // Exactly as many as were announced: a descriptor too many would be somebody's by mistake.
    if (received_.size() != (descriptors ? kStdioFds : 0))
        return refuse({wire::WireError::refused, "descriptors with OPEN", received_.size()});
    start();
}

// Everything that can be refused is refused before the fork: a child never runs to find out that
// it must not.
void Session::start()
{
    auto spec = make_spec(open_, boot_);
    if (!spec) return refuse(spec.error());
    // Their ends are closed on return: only then does the end of the child show as the end of the
    // pipe.
    Stdio theirs;
    if (open_.stdio == wire::SessionStdio::descriptors) {
        theirs = {std::move(received_[0]), std::move(received_[1]), std::move(received_[2])};
    } else {
        auto made = wants_terminal() ? make_terminal() : make_stdio();
        if (!made) return refuse(made.error());
        theirs = std::move(*made);
    }
    received_.clear();
    // Looked at, not believed: stdin is what decides whether there is a terminal.
    spec->controlling_terminal = ::isatty(theirs.in.get()) == 1;
    // A terminal where none was said would give the session one that nobody resizes or hangs up.
    if (!is_service() && spec->controlling_terminal != (open_.kind == wire::SessionKind::pty))
        return refuse({wire::WireError::refused, "stdin and the kind of session differ", 0});
    // Before the fork: after it nothing may be looked up that could go wrong.
    Program program = make_program(open_, boot_);
    // Only for the service: a session must not see them.
    if (is_service() && gate_.secrets != nullptr) {
        program.secrets = gate_.secrets->variables();
        if (!gate_.secrets->lend_variables())
            return refuse({wire::WireError::refused, "secrets cannot be handed over", 0});
    }
    auto child = spawn(program, std::move(*spec), theirs, leaf_kind_, leaf_, boot_.landlock_abi,
                       gate_.user_namespace);
    // It has them now, and no other child is to see them.
    if (is_service() && gate_.secrets != nullptr) gate_.secrets->forget_variables();
    // The child is in it; our descriptors are not needed to keep it.
    leaf_.clear();
    if (child)
        opened_ = wire::SessionOpened{name_,      static_cast<std::uint32_t>(child->pid),
                                      open_.kind, open_.uid,
                                      open_.gid,  argv_digest(open_.argv)};
    open_.argv = {};  // up to 1 MiB that nobody needs any more
    open_.env = {};
    if (!child) {
        note_ = child.error().message();
        // As if execve had failed: the peer gets EXIT, with the errno.
        exit_ = {wire::ExitOutcome::failed_to_start, child.error().errnum()};
        state_ = State::draining;
        return;
    }
    if (is_service()) gate_.service_opened = true;
    leader_ = child->pid;
    report_ = std::move(child->report);
    state_ = State::starting;
    // From the fork, not from the start of the program: a gate that never opens is bounded, too.
    if (open_.timeout_ms > 0) timeout_at_ = now_ms() + open_.timeout_ms;
}

bool Session::wants_terminal() const noexcept
{
    return open_.kind == wire::SessionKind::pty || (is_service() && open_.rows != 0);
}

wire::Decoded<Stdio> Session::make_stdio()
{
    auto in = sys::make_pipe();
    auto out = sys::make_pipe();
    auto err = sys::make_pipe();
    if (!in || !out || !err)
        return std::unexpected(
            wire::Failure{wire::WireError::busy, "no descriptors left for pipes", 0});
    stdin_ = std::move(in->write);
    stdout_ = std::move(out->read);
    stderr_ = std::move(err->read);
    for (const sys::UniqueFd* pipe : {&stdin_, &stdout_, &stderr_})
        if (!sys::set_nonblocking(pipe->get()))
            return std::unexpected(wire::Failure{wire::WireError::busy, "pipes", 0});
    return Stdio{std::move(in->read), std::move(out->write), std::move(err->write)};
}

// In the tree's own devpts. The slave is the user's; both of our ends are the master.
wire::Decoded<Stdio> Session::make_terminal()
{
    const wire::Failure failed{wire::WireError::busy, "no terminal left", 0};
    sys::UniqueFd master(::open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
    const int unlocked = 0;
    if (!master || ::ioctl(master.get(), TIOCSPTLCK, &unlocked) != 0)
        return std::unexpected(failed);
    sys::UniqueFd slave(::ioctl(master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
    if (!slave || ::fchown(slave.get(), open_.uid, open_.gid) != 0 ||
        ::fchmod(slave.get(), 0600) != 0)
        return std::unexpected(failed);
    auto out = sys::duplicate(slave.get());
    auto err = sys::duplicate(slave.get());
    auto input = sys::duplicate(master.get());
    if (!out || !err || !input) return std::unexpected(failed);
    stdout_ = std::move(master);
    stdin_ = std::move(*input);
    terminal_ = true;
    resize({open_.rows, open_.cols});
    return Stdio{std::move(slave), std::move(*out), std::move(*err)};
}

void Session::resize(const wire::Resize& wanted)
{
    if (!terminal_) return refuse({wire::WireError::refused, "RESIZE without a terminal", 0});
    const winsize size{wanted.rows, wanted.cols, 0, 0};
    if (stdout_.valid()) ::ioctl(stdout_.get(), TIOCSWINSZ, &size);
}

void Session::read_report()
{
    // Packets, seqpacket: each read is one message or the end.
    const ssize_t count = ::recv(report_.get(), g_read_chunk.data(), g_read_chunk.size(),
                                 MSG_DONTWAIT);
    if (count < 0 && again(errno)) return;
    if (count <= 0) {
        report_.reset();
        // End before the gate was passed: it died, and its status says how.
        if (state_ != State::execing || start_errno_) return;
        state_ = State::running;
        out_.send(wire::Started{static_cast<std::uint32_t>(leader_)});
        // Silence is counted from the start of the program.
        quiet_since_ = now_ms();
        if (boot_.silent_ms > 0 && open_.stdio == wire::SessionStdio::frames)
            silent_at_ = quiet_since_ + boot_.silent_ms;
        return;
    }
    const std::size_t size = static_cast<std::size_t>(count);
    // A frame that the child has encoded: it goes to the host as it is, unread.
    if (static_cast<char>(g_read_chunk[0]) == kReport && state_ == State::starting) {
        out_.append({g_read_chunk.data() + 1, size - 1});
        state_ = State::gated;
        // Without a gate the host wants no look.
        if (!open_.gate) pass_gate();
        return;
    }
    FailurePacket packet;
    if (static_cast<char>(g_read_chunk[0]) == kFailure && size == sizeof packet) {
        std::memcpy(&packet, g_read_chunk.data(), sizeof packet);
        start_errno_ = packet.errnum;
        // The child is ours, but a text has an end.
        packet.step[sizeof packet.step - 1] = '\0';
        note_ = std::string("start failed at ") + packet.step + ": " + std::strerror(packet.errnum);
    }
}

void Session::pass_gate()
{
    const char go = 'G';
    // A child that cannot be told must not wait for ever.
    if (::send(report_.get(), &go, 1, MSG_NOSIGNAL) != 1) signal(SIGKILL);
    state_ = State::execing;
}

void Session::read_output(sys::UniqueFd& pipe, std::uint8_t type)
{
    // One chunk a turn: other sessions get theirs.
    const ssize_t count = ::read(pipe.get(), g_read_chunk.data(), g_read_chunk.size());
    if (count < 0 && again(errno)) return;
    if (count <= 0) return pipe.reset();
    const auto size = static_cast<std::size_t>(count);
    // The header apart: the bytes are not copied into a message first.
    out_.append(wire::encode_header({type, static_cast<std::uint32_t>(size)}));
    out_.append({g_read_chunk.data(), size});
    // Any output ends the silence.
    if (silent_at_ != kNever) {
        quiet_since_ = now_ms();
        silent_at_ = quiet_since_ + boot_.silent_ms;
    }
}

void Session::write_input()
{
    // With descriptors, or after its end: there is nowhere to write.
    if (!stdin_.valid()) return input_.clear();
    const auto flushed = input_.flush_to_pipe(stdin_.get());
    // Nobody reads any more: as with any pipe, what follows is lost, and only that.
    if (flushed == Outbox::Flushed::broken) input_.clear();
    const bool finished = flushed == Outbox::Flushed::all && input_ended_ && !terminal_;
    if (finished || flushed == Outbox::Flushed::broken) stdin_.reset();
}

void Session::signal(int number) noexcept
{
    // After the reaping the number may be somebody else's.
    if (!has_child()) return;
    // The leader made a session of its own; before that its group is PID 1's and only it is meant.
    if (::kill(-leader_, number) != 0) ::kill(leader_, number);
}

void Session::expire(std::int64_t now)
{
    if (now >= timeout_at_) {
        timeout_at_ = kNever;
        timed_out_ = true;
        // SIGKILL at once: a time-out is no request.
        signal(SIGKILL);
    }
    if (now >= silent_at_) {
        out_.send(wire::Silent{static_cast<std::uint32_t>(now - quiet_since_)});
        // Again after the next such span.
        silent_at_ = now + boot_.silent_ms;
    }
}

void Session::leader_exited(const sys::ExitStatus& status)
{
    // What it said last may still lie in the socket: at most its report, a failure and the end.
    // The order of packets and SIGCHLD is not given: what it sent comes first here.
    for (int packets = 0; packets < 3 && report_.valid(); ++packets) read_report();
    leader_ = 0;
    report_.reset();
    timeout_at_ = kNever;
    silent_at_ = kNever;
    // Already refused: its end has been told.
    if (state_ >= State::closing) return;
    if (timed_out_)
        exit_ = {wire::ExitOutcome::timed_out, SIGKILL};
    else if (start_errno_)
        exit_ = {wire::ExitOutcome::failed_to_start, *start_errno_};
    else if (status.signal != 0)
        exit_ = {wire::ExitOutcome::signaled, status.signal};
    else
        exit_ = {wire::ExitOutcome::exited, status.code};
    state_ = State::draining;
    // Nobody reads it any more.
    stdin_.reset();
    input_.clear();
}

// All the leader wrote is in the pipes by now; what others in the session still hold open does not
// keep EXIT back.
void Session::finish_if_drained()
{
    for (const auto& [pipe, type] :
         {std::pair(&stdout_, wire::Stdout::kType), std::pair(&stderr_, wire::Stderr::kType)}) {
        while (pipe->valid()) {
            if (out_.size() >= kHighWater) return;
            // read_output() tells "nothing there" only by adding nothing.
            const std::size_t before = out_.size();
            read_output(*pipe, type);
            if (pipe->valid() && out_.size() == before) break;  // empty, held open by others
        }
    }
    stdout_.reset();
    stderr_.reset();
    // After all output: the peer may close when it has this.
    out_.send(exit_);
    state_ = State::closing;
}

void Session::refuse(wire::Failure failure)
{
    // A stream that ended inside a frame has nobody left to tell.
    if (failure.error != wire::WireError::truncated)
        out_.send(wire::ErrorMessage{static_cast<std::uint16_t>(failure.error), failure.what});
    // Also before the fork: signal() knows.
    signal(SIGKILL);
    stdin_.reset();
    stdout_.reset();
    stderr_.reset();
    input_.clear();
    state_ = State::closing;
}

void Session::flush()
{
    const auto flushed = stream_->flush(out_);
    // The peer is gone: nobody can take the result, so the work ends too.
    if (flushed == Outbox::Flushed::broken) {
        signal(SIGKILL);
        state_ = State::done;
    } else if (flushed == Outbox::Flushed::all && state_ == State::closing) {
        state_ = State::done;
    }
}

std::optional<wire::SessionOpened> Session::take_opened()
{
    return std::exchange(opened_, std::nullopt);
}

std::optional<wire::SessionEnded> Session::take_ended()
{
    // As soon as EXIT is decided, though it may have to wait behind output that nobody takes; a session
    // that is refused has ended as well.
    if (end_told_ || state_ < State::draining) return std::nullopt;
    end_told_ = true;
    return wire::SessionEnded{name_, exit_.outcome, exit_.value};
}

std::optional<std::string> Session::take_note()
{
    if (note_.empty()) return std::nullopt;
    return std::exchange(note_, {});
}

}  // namespace sandbox::guest
