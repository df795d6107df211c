// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "shim/loop.hpp"
#include "shim/pty.hpp"
#include "shim/ring.hpp"
#include "wire/wire.hpp"

namespace sandbox::shim {

// Fixed in docs/protocol.md, "Attachments": the last MiB can be read again.
inline constexpr std::size_t kRingBytes = 1U << 20;

// A descriptor that is waited for only while something could not be written to it. A watch on a
// descriptor that is always writable would spin. Owns the descriptor; the loop outlives it.
class Outlet {
public:
    Outlet(Loop& loop, std::function<void()> ready) : loop_(loop), ready_(std::move(ready)) {}
    ~Outlet() { close(); }
    Outlet(const Outlet&) = delete;
    Outlet& operator=(const Outlet&) = delete;

    void open(sys::UniqueFd fd) noexcept { fd_ = std::move(fd); }
    void close();
    bool is_open() const noexcept { return fd_.valid(); }
    // What was taken; 0 when it must be waited for (ready() comes then); nothing when it is broken.
    std::optional<std::size_t> write(std::string_view bytes);

private:
    Loop& loop_;
    std::function<void()> ready_;
    sys::UniqueFd fd_;
    std::optional<Loop::Token> watch_;
};

// The host's side of one terminal session: what the program writes goes into a ring, from there to
// whoever is attached and, for the profile's process, into the log. Nobody attached: the oldest
// bytes fall out. Somebody attached, or a log that is behind: the program waits. An attachment is a
// stream of port 5001 frames: STDOUT and EXIT to the client, STDIN, RESIZE and SIGNAL from it; the
// client leaves by shutting its sending side, and then has every byte that was counted as its.
class TerminalRelay {
public:
    struct Hooks {
        std::function<void(int)> signal;  // asked for by whoever is attached
        std::function<void()> changed;  // is_drained() or is_attached() may say something new
        std::function<void(Window)> resized;  // of a terminal that is elsewhere; none: of ours
    };
    TerminalRelay(Loop& loop, Terminal terminal, Hooks hooks);
    ~TerminalRelay();
    TerminalRelay(const TerminalRelay&) = delete;
    TerminalRelay& operator=(const TerminalRelay&) = delete;

    // Watches the master. Call once, before anything else but log_into() and adopt().
    [[nodiscard]] Status begin();
    // The slave, for OPEN. Ours stays open until leader_gone(): a program that closes its terminal
    // for a while must not look like the end.
    int slave() const noexcept { return slave_.get(); }
    void set_window(Window window)
    {
        if (hooks_.resized) return hooks_.resized(window);
        if (master_.valid()) static_cast<void>(resize(master_.get(), window));
    }
    void log_into(sys::UniqueFd pipe);

    struct Attached {
        sys::UniqueFd stream;  // the client's end
        std::uint64_t offset = 0;  // of the first byte it will get
    };
    // Nothing said: behind the last byte that an attachment got, or the oldest there is.
    // Code::conflict when somebody is attached.
    [[nodiscard]] Result<Attached> attach(std::optional<std::uint64_t> from);
    // The same with a stream that came with the launch.
    [[nodiscard]] Status adopt(sys::UniqueFd stream);
    bool is_attached() const noexcept { return client_.valid(); }

    // The session is over: our slave closes, so that the master comes to its end.
    void leader_gone();
    // Told behind the last byte, to whoever is attached then or later.
    void tell_exit(wire::Exit exit);
    // The program's last byte was read and has reached the log and, where somebody is attached, the
    // stream, with EXIT behind it.
    bool is_drained() const;
    bool exit_was_told() const noexcept { return exit_told_; }
    std::uint64_t bytes() const noexcept { return ring_.end(); }

private:
    void read_master();
    void read_client();
    void take(const wire::SessionMessage& message);
    void write_master();
    void push();
    void push_client();
    void push_log();
    bool next_frame();
    void watch_master();
    void watch_client();
    void leave();
    std::size_t room() const;

    Loop& loop_;
    Hooks hooks_;
    sys::UniqueFd master_;
    sys::UniqueFd slave_;
    std::optional<Loop::Token> master_watch_;
    bool at_end_ = false;  // of the master
    Ring ring_{kRingBytes};
    std::optional<std::uint64_t> read_to_;  // by attachments so far

    sys::UniqueFd client_;
    std::optional<Loop::Token> client_watch_;
    wire::FrameDecoder decoder_{wire::Port::session, wire::Direction::to_guest, wire::Stage::later};
    Outlet client_out_;
    std::string frame_;  // on its way to the client
    std::uint64_t client_at_ = 0;
    bool leaving_ = false;  // the client sends no more: the frame on its way is its last
    std::optional<wire::Exit> exit_;
    bool exit_told_ = false;

    Outlet input_;  // to the master
    std::string typed_;  // on its way there

    Outlet log_;
    std::uint64_t log_at_ = 0;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace sandbox::shim
