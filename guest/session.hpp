// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "guest/outbox.hpp"
#include "guest/poller.hpp"
#include "guest/secrets.hpp"
#include "guest/spawn.hpp"
#include "guest/stream.hpp"
#include "sys/process.hpp"
#include "wire/wire.hpp"

namespace sandbox::guest {

// What sessions may ask of PID 1; one for all, part of ControlState. What the control port has
// decided.
struct Gatekeeper {
    bool provisioned = false;
    bool ready = false;
    bool service_opened = false;
    Secrets* secrets = nullptr;  // variables of the service
    int user_namespace = -1;     // that sessions are in; none: PID 1's own
};

// One connection of port 5001 and the process behind it, as a state machine that never blocks.
// Owned by the loop; gone when done(). Holds references: record and gatekeeper outlive it.
// Destroying it does not kill the process; only done() says that nothing is left to do.
class Session {
public:
    // `leaf`: descriptors of the cgroup that the child is born in; closed once it is.
    Session(std::unique_ptr<Stream> stream, std::string name, wire::LeafKind kind,
            std::vector<sys::UniqueFd> leaf, const wire::Bootstrap& boot, Gatekeeper& gate);

    // watch() in every turn before poll, handle() after it, also when nothing is ready: deadlines
    // are looked at there.
    void watch(Poller& poller);
    void handle(const Poller& poller, std::int64_t now);
    std::int64_t deadline() const noexcept;  // kNever when none

    // The leader was reaped, `status` as waitid(2) gave it. Drains what the leader said before its
    // end.
    void leader_exited(const sys::ExitStatus& status);
    // SIGKILL or another to the leader's process group. Nothing happens once the leader was reaped.
    void signal(int number) noexcept;

    bool done() const noexcept { return state_ == State::done; }
    // 0 when there is no process (any more).
    pid_t leader() const noexcept { return leader_; }
    bool is_running() const noexcept { return state_ == State::running; }
    bool is_service() const noexcept { return open_.kind == wire::SessionKind::service; }
    const std::string& name() const noexcept { return name_; }
    // Why the start failed, once, for the log.
    std::optional<std::string> take_note();
    // What the shim is told of this session, each once: that a child was forked, and that it is
    // over (or never had one).
    std::optional<wire::SessionOpened> take_opened();
    std::optional<wire::SessionEnded> take_ended();

private:
    // In this order: comparisons with < mean "not yet".
    enum class State {
        opening,  // OPEN has not come in full
        starting,  // forked, no report yet
        gated,  // CONFINED sent, GO awaited
        execing,  // GO passed on
        running,
        draining,  // the leader is gone, its output not yet sent
        closing,  // last frame queued
        done
    };

    bool reading() const noexcept;
    void read_stream();
    void take_bytes(std::span<const std::byte> bytes);
    void take(const wire::SessionMessage& message);
    void open(wire::Open open);
    void start();
    [[nodiscard]] wire::Decoded<Stdio> make_stdio();
    [[nodiscard]] wire::Decoded<Stdio> make_terminal();
    void resize(const wire::Resize& wanted);
    bool wants_terminal() const noexcept;
    void pass_gate();
    void read_report();
    void read_output(sys::UniqueFd& pipe, std::uint8_t type);
    void write_input();
    void expire(std::int64_t now);
    void refuse(wire::Failure failure);
    void finish_if_drained();
    void flush();
    void end();
    bool has_child() const noexcept { return leader_ > 0; }

    const wire::Bootstrap& boot_;
    Gatekeeper& gate_;
    State state_ = State::opening;
    std::string name_;
    std::unique_ptr<Stream> stream_;
    wire::LeafKind leaf_kind_;
    std::vector<sys::UniqueFd> leaf_;
    std::vector<sys::UniqueFd> received_;  // with OPEN
    wire::FrameDecoder decoder_{wire::Port::session, wire::Direction::to_guest};
    wire::Open open_;
    pid_t leader_ = 0;
    sys::UniqueFd report_;
    bool terminal_ = false;  // made here: stdin_ and stdout_ are its master
    sys::UniqueFd stdin_;  // our ends
    sys::UniqueFd stdout_;
    sys::UniqueFd stderr_;
    Outbox out_;
    Outbox input_;
    bool input_ended_ = false;  // STDIN_EOF, or the peer shut its sending side
    bool peer_ended_ = false;
    bool timed_out_ = false;
    std::optional<int> start_errno_;
    std::string note_;
    // What is said when nothing better came to be known.
    wire::Exit exit_{wire::ExitOutcome::signaled, SIGKILL};
    std::optional<wire::SessionOpened> opened_;
    bool end_told_ = false;
    std::int64_t timeout_at_ = kNever;
    std::int64_t silent_at_ = kNever;
    std::int64_t quiet_since_ = 0;
    std::size_t at_report_ = Poller::kNone;
    std::size_t at_stdin_ = Poller::kNone;
    std::size_t at_stdout_ = Poller::kNone;
    std::size_t at_stderr_ = Poller::kNone;
};

}  // namespace sandbox::guest
