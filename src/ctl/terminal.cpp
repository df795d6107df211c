// SPDX-License-Identifier: Apache-2.0
#include "ctl/terminal.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "ctl/output.hpp"

namespace sandbox::ctl {

namespace {

using supervisor::Steer;

// As shells do, and so every caller can tell.
constexpr int kBySignal = 128;

// For handlers, which know nothing else and must not allocate. One terminal: a process has one.
int g_terminal = -1;
termios g_before{};
termios g_raw{};

// TCSADRAIN: what was written before is shown in the mode it was written for.
void set_mode(int fd, const termios& mode) noexcept
{
    // From the background the kernel would stop us for it (SIGTTOU, tcsetattr(3)).
    sigset_t block;
    sigset_t before;
    sigemptyset(&block);
    sigaddset(&block, SIGTTOU);
    sigprocmask(SIG_BLOCK, &block, &before);
    while (tcsetattr(fd, TCSADRAIN, &mode) != 0 && errno == EINTR) {}
    sigprocmask(SIG_SETMASK, &before, nullptr);
}

// Async-signal-safe: tcsetattr and raise are (signal-safety(7)).
extern "C" void restore_and_die(int signal)
{
    // TCSANOW: draining could wait for ever, and this process is at its end.
    if (g_terminal >= 0) tcsetattr(g_terminal, TCSANOW, &g_before);
    // The default action makes the core dump or the status that the crash deserves.
    std::signal(signal, SIG_DFL);
    raise(signal);
}

// Signals that end a process by default and that nobody here handles; TERM, INT and HUP come
// through SignalSteering.
constexpr std::array kCrashes{SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,  SIGABRT,   SIGTRAP,
                              SIGSYS,  SIGXCPU, SIGXFSZ, SIGALRM, SIGVTALRM, SIGPROF};

}  // namespace

Result<RawTerminal> RawTerminal::enter(int fd)
{
    if (tcgetattr(fd, &g_before) != 0) return fail_errno("tcgetattr");
    g_raw = g_before;
    cfmakeraw(&g_raw);
    // First the copy and the handlers, then the change: there is no moment in which a crash leaves
    // it raw.
    g_terminal = fd;
    for (const int signal : kCrashes) std::signal(signal, restore_and_die);
    set_mode(fd, g_raw);
    return RawTerminal(fd);
}

RawTerminal::~RawTerminal()
{
    if (fd_ < 0) return;
    leave();
    g_terminal = -1;
    // Nobody else sets these in this program.
    for (const int signal : kCrashes) std::signal(signal, SIG_DFL);
}

void RawTerminal::leave() const noexcept { set_mode(fd_, g_before); }

void RawTerminal::enter_again() const noexcept { set_mode(fd_, g_raw); }

void measure(int fd, supervisor::Console& console)
{
    // ioctl_tty(2). Console keeps what it had.
    winsize size{};
    if (ioctl(fd, TIOCGWINSZ, &size) != 0) return;
    console.rows = size.ws_row;
    console.cols = size.ws_col;
}

// A number that is closed may be anybody's a moment later, so it is not used at all.
int open_or_none(int fd) { return fcntl(fd, F_GETFD) < 0 ? -1 : fd; }

Status join_terminal(supervisor::Console& console, const std::string& detach_keys)
{
    const char* term = std::getenv("TERM");
    console.term = term == nullptr ? "" : term;
    console.detach_keys = TRY(parse_detach_keys(detach_keys));
    // The mode of our input decides: keys that leave mean something on a terminal only.
    console.terminal = console.in >= 0 && isatty(console.in) == 1;
    // Any of the three: output may go to a file, and the size is the same for all.
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (isatty(fd) != 1) continue;
        measure(fd, console);
        break;
    }
    return {};
}

int say_left(const std::string& session, const std::string& sandbox, int status, int signal)
{
    std::string back = "sandboxctl attach ";
    // "s1" is the main process, shim/guest_link.hpp.
    if (!session.empty() && session != "s1") back += "--session " + session + " ";
    // For a person only; a script knows the session.
    if (isatty(STDERR_FILENO) == 1) say("\nsandboxctl: left; '" + back + sandbox + "' comes back");
    return signal == 0 ? status : kBySignal + signal;
}

Result<std::string> parse_detach_keys(const std::string& text)
{
    constexpr std::string_view kControl = "ctrl-";
    std::string keys;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t comma = std::min(text.find(',', at), text.size());
        const std::string word = text.substr(at, comma - at);
        at = comma + 1;
        if (word.size() == 1) {
            keys += word.front();
        } else if (word.starts_with(kControl) && word.size() == kControl.size() + 1) {
            // Upper or lower case: a terminal sends the same byte for both.
            const char key = word.back();
            const char upper = key >= 'a' && key <= 'z' ? static_cast<char>(key - 'a' + 'A') : key;
            // "@" to "_" are the control characters 0 to 31 (ascii(7)).
            if (upper < '@' || upper > '_')
                return fail(Code::invalid_argument, "there is no control key '" + word + "'");
            keys += static_cast<char>(upper - '@');
        } else {
            return fail(Code::invalid_argument,
                        "--detach-keys wants keys such as ctrl-p,ctrl-q; found '" + text + "'");
        }
    }
    return keys;
}

Status SignalSteering::begin(Mode mode, int terminal)
{
    mode_ = mode;
    terminal_ = terminal;
    sigset_t set;
    sigemptyset(&set);
    // Blocked before anything is started: what comes earlier is not lost but read later.
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&set, signal);
    // Also to what runs inside; a mere look has nobody to pass them on to.
    if (mode != Mode::looking)
        for (const int signal : {SIGUSR1, SIGUSR2}) sigaddset(&set, signal);
    // Without a terminal they keep their meaning: a shell stops and continues us as any other
    // program.
    if (mode == Mode::terminal)
        for (const int signal : {SIGWINCH, SIGTSTP, SIGCONT}) sigaddset(&set, signal);
    // A reader of ours that goes away is an error where we write, not our end.
    std::signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return fail_errno("sigprocmask");
    signals_.reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    return signals_ ? Status{} : fail_errno("signalfd");
}

std::optional<Steer> SignalSteering::next()
{
    signalfd_siginfo info{};
    // signalfd(2) merges equal signals that wait; none of these counts.
    while (waiting_.empty() && read(signals_.get(), &info, sizeof info) == sizeof info)
        take(static_cast<int>(info.ssi_signo));
    if (waiting_.empty()) return std::nullopt;
    const Steer steer = waiting_.front();
    waiting_.pop_front();
    return steer;
}

void SignalSteering::take(int signal)
{
    switch (mode_) {
    case Mode::terminal: return take_on_terminal(signal);
    case Mode::pipes: waiting_.push_back({.kind = Steer::Kind::signal, .signal = signal}); return;
    case Mode::looking:
        // The first may be followed by more; the last one is what the status shows.
        left_by_ = signal;
        waiting_.push_back({.kind = Steer::Kind::detach});
        return;
    }
}

void SignalSteering::take_on_terminal(int signal)
{
    switch (signal) {
    case SIGWINCH: return resize();
    case SIGTSTP: return stop_ourselves();
    case SIGCONT:
        // Stopped by SIGSTOP, the shell has set the terminal as it likes it.
        if (raw_ != nullptr) raw_->enter_again();
        return resize();
    case SIGTERM:
    case SIGHUP:
        // The terminal is gone, or we are to go. A shell inside ends on HUP as it does under ssh;
        // what ignores it can be attached to again.
        // TERM only leaves: what runs inside is not ours to end.
        if (signal == SIGHUP) waiting_.push_back({.kind = Steer::Kind::signal, .signal = signal});
        left_by_ = signal;
        waiting_.push_back({.kind = Steer::Kind::detach});
        return;
    default: waiting_.push_back({.kind = Steer::Kind::signal, .signal = signal}); return;
    }
}

void SignalSteering::resize()
{
    supervisor::Console size;
    measure(terminal_, size);
    // No size known: better the old one than none.
    if (size.rows == 0 && size.cols == 0) return;
    waiting_.push_back(
        {.kind = Steer::Kind::resize, .signal = 0, .rows = size.rows, .cols = size.cols});
}

void SignalSteering::stop_ourselves()
{
    // The shell gets a sane terminal while we are stopped.
    if (raw_ != nullptr) raw_->leave();
    // SIGSTOP, as TSTP itself is blocked. Returns when somebody sends SIGCONT.
    raise(SIGSTOP);
    if (raw_ != nullptr) raw_->enter_again();
    // The window may have changed meanwhile; WINCH is not sent to who is stopped in the background.
    resize();
}

}  // namespace sandbox::ctl
