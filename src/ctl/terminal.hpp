// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "supervisor/service.hpp"
#include "sys/fd.hpp"

// The terminal and the signals of the person at the prompt: everything of them that a session needs
// is done here and nowhere else.
namespace sandbox::ctl {

// The terminal hands over every key unread and undone (cfmakeraw(3)), until this object ends. It
// also gets back what it was when this program crashes; only SIGKILL leaves it raw. At most one at
// a time: the handlers know one. `fd` is borrowed.
class RawTerminal {
public:
    // The Error of tcgetattr(3): `fd` is no terminal.
    [[nodiscard]] static Result<RawTerminal> enter(int fd);
    RawTerminal(RawTerminal&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    RawTerminal& operator=(RawTerminal&&) = delete;
    ~RawTerminal();

    // Back to what it was, and raw again: around a stop.
    void leave() const noexcept;
    void enter_again() const noexcept;

private:
    explicit RawTerminal(int fd) noexcept : fd_(fd) {}
    int fd_;
};

// Rows and columns; unchanged where `fd` is no terminal.
void measure(int fd, supervisor::Console& console);

int open_or_none(int fd);  // -1: closed when we were started

// What a session on a terminal needs of ours, as far as there is one: its name, size and the keys
// that leave. Requires: console.in is set. invalid_argument: bad detach keys.
[[nodiscard]] Status join_terminal(supervisor::Console& console, const std::string& detach_keys);

// A session that was left, not ended: says what to do to come back. Returns the exit status;
// `signal` is what made us leave, 0 the keys.
int say_left(const std::string& session, const std::string& sandbox, int status, int signal);

// "ctrl-p,ctrl-q": keys or control keys between commas, as docker has it; empty: none. The bytes
// that a terminal sends for them. invalid_argument: something else.
[[nodiscard]] Result<std::string> parse_detach_keys(const std::string& text);

// Signals of this process as things a session is told. They are blocked from begin() on and for the
// rest of the process, so that none is lost or acts on us meanwhile. One thread only.
class SignalSteering final : public supervisor::Steering {
public:
    enum class Mode {
        pipes,  // each goes to the session
        terminal,  // TERM leaves it, HUP tells it and leaves it, WINCH resizes, TSTP stops us
        looking,  // any ends the look
    };
    // `terminal` is borrowed, and asked for its size.
    [[nodiscard]] Status begin(Mode mode, int terminal);
    int fd() const override { return signals_.get(); }
    // Nothing: no signal waits. Never blocks; in terminal mode SIGTSTP stops the process in here.
    std::optional<supervisor::Steer> next() override;
    // Whose mode is put back around a stop; must outlive the steering or be set to null.
    void raw(const RawTerminal* terminal) noexcept { raw_ = terminal; }
    // What made us leave; 0: nothing, or the keys.
    int left_by() const noexcept { return left_by_; }

private:
    void take(int signal);
    void take_on_terminal(int signal);
    void resize();
    void stop_ourselves();

    Mode mode_ = Mode::pipes;
    int terminal_ = -1;
    sys::UniqueFd signals_;
    const RawTerminal* raw_ = nullptr;
    std::deque<supervisor::Steer> waiting_;
    int left_by_ = 0;
};

}  // namespace sandbox::ctl
