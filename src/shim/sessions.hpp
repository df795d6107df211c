// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "shim/control_protocol.hpp"
#include "shim/generation.hpp"
#include "shim/journal.hpp"
#include "shim/leaf_pool.hpp"
#include "shim/loop.hpp"
#include "shim/pty.hpp"
#include "shim/terminal_relay.hpp"

namespace sandbox::shim {

// The sessions of one running generation. Those that come through the door are handed to
// sandbox-init and known here by what it reports; terminals and detached ones are opened here and
// outlive the client that asked. Nothing in it blocks for longer than a commit. Borrows generation,
// journal and loop; one thread.
class Sessions {
public:
    // A reply and a descriptor that goes with it (-1: none). May be called in a later turn; the
    // client may be gone by then.
    using Answer = std::function<void(const Reply&, int fd)>;

    Sessions(Generation& generation, Journal& journal, Loop& loop, std::function<void()> active);
    ~Sessions();
    Sessions(const Sessions&) = delete;
    Sessions& operator=(const Sessions&) = delete;

    // A stream that knocked on port 5001. resource_exhausted: as many sessions as there may be;
    // then it is closed without OK.
    [[nodiscard]] Status admit(sys::UniqueFd stream);
    // What sandbox-init says on its channel: hostile, so only what fits a session we know is
    // believed.
    void told(const wire::InitMessage& message);

    // One of them has not ended.
    bool any_at_work() const;

    // True when the request was one about sessions: it is or will be answered.
    bool serve(const Request& request, std::vector<sys::UniqueFd> fds, const Answer& answer);

    // The profile's process, where it has a terminal: starts its relay.
    [[nodiscard]] Status begin_service();
    // Its end, for whoever is attached; `exit` is what the keeper made of it.
    void service_ended(const wire::Exit& exit);
    // Everything of it has reached the log and whoever is attached.
    bool service_is_drained() const;
    void on_service_drained(std::function<void()> then) { service_drained_ = std::move(then); }

    // Where OOM kills are known to the guest alone: how many it has told of so far.
    void ask_guest_kills(std::function<std::uint64_t()> count) { guest_kills_ = std::move(count); }
    // Where its processes are the guest's to signal: asks its PID 1.
    using GuestSignal = std::function<Status(const std::string& session, int signal)>;
    void signal_through(GuestSignal guest) { guest_signal_ = std::move(guest); }

    // The sandbox is about to end: what is not written down yet is.
    [[nodiscard]] Status settle();

private:
    struct Session;
    using Shared = std::shared_ptr<Session>;

    void open(const OpenSession& request, sys::UniqueFd memfd, const Answer& answer);
    [[nodiscard]] Result<Shared> prepare(const OpenSession& request, wire::Open open);
    [[nodiscard]] Status give_terminal(Session& session, const OpenSession& request,
                                       const wire::Open& open);
    [[nodiscard]] Result<Terminal> open_terminal(const OpenSession& request,
                                                 const wire::Open& open);
    [[nodiscard]] Result<std::array<sys::UniqueFd, 3>> give_log(Session& session);
    [[nodiscard]] Status watch_log(Session& session);
    void on_log_ended(std::uint32_t number);
    [[nodiscard]] Status send_open(Session& session, const wire::Open& open,
                                   std::array<int, 3> stdio);
    void attach(const AttachSession& request, const Answer& answer);
    [[nodiscard]] Status attach_service(const AttachSession& request, const Answer& answer);
    SessionList list(std::uint32_t after);
    [[nodiscard]] Status signal(const SignalSession& request);
    Shared find(const std::string& name) const;

    void on_stream(std::uint32_t number);
    bool take(Session& session, const wire::SessionMessage& message);  // true: the last one
    [[nodiscard]] Status witness(Session& session, const wire::Confined& report);
    void started(Session& session);
    void refused(Session& session, std::string why);
    void ended(Session& session, wire::Exit exit);
    void settle_end(Session& session);
    void retire_leaf(const Shared& session);
    void send_signal(Session& session, int signal);
    void tell_waiters(std::vector<sys::UniqueFd>& waiters, const wire::Exit& exit);
    void drop(std::uint32_t number);
    void drop_old();
    void write_down(audit::Body body);
    int host_pid(const Session& session) const;

    Generation& generation_;
    Journal& journal_;
    Loop& loop_;
    std::function<void()> active_;  // a session began or ended
    LeafPool leaves_;
    std::optional<Devpts> devpts_;
    std::map<std::uint32_t, Shared> sessions_;
    std::uint32_t next_ = 2;  // s1 is the profile's process
    std::vector<audit::Body> unwritten_;
    std::optional<Loop::Token> write_timer_;

    std::unique_ptr<TerminalRelay> service_;
    std::vector<sys::UniqueFd> service_waiters_;
    std::optional<wire::Exit> service_exit_;
    std::function<void()> service_drained_;
    std::function<std::uint64_t()> guest_kills_;
    GuestSignal guest_signal_;
};

// As a program exits: 128 + signal, 124 time-out, 126 and 127 could not be executed.
ledger::Exit exit_of(const wire::Exit& message);

}  // namespace sandbox::shim
