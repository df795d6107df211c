// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "channel/door.hpp"
#include "driver/microvm/qmp.hpp"
#include "shim/control_protocol.hpp"
#include "shim/generation.hpp"
#include "shim/guest_events.hpp"
#include "shim/health_check.hpp"
#include "shim/journal.hpp"
#include "shim/limits.hpp"
#include "shim/loop.hpp"
#include "shim/restart.hpp"
#include "shim/ring.hpp"
#include "shim/sessions.hpp"

namespace sandbox::shim {

// STATE/sandboxes/ID/end.json: {"generation","ended_by"}, for `inspect`; written when something
// other than the workload ended it.
inline constexpr const char* kEndName = "end.json";

// STATE/sandboxes/ID/console.log: the last bytes of a guest's console, as they came.
inline constexpr const char* kConsoleName = "console.log";
inline constexpr std::size_t kConsoleBytes = 64U << 10;

// Keeps one running generation: its exit, time-out, stop, clients and door. One thread, one loop.
// Borrows generation and journal. Nothing blocks but syncs of the ledger, a freeze and the kill of
// a leaf.
class Keeper {
public:
    // `launcher` is the socket to whoever asked for the launch; may be invalid. `listener` is
    // shim.sock of the generation before, if there was one; `ttl` ends this one.
    Keeper(Generation& generation, Journal& journal, sys::UniqueFd launcher,
           sys::UniqueFd listener = {}, sys::Deadline ttl = sys::Deadline::never());
    ~Keeper();
    Keeper(const Keeper&) = delete;
    Keeper& operator=(const Keeper&) = delete;

    // Listens on v.sock and shim.sock and tells the launcher that the workload runs.
    [[nodiscard]] Status open_for_business();

    // Looks for a moment whether the workload is over already; then open_for_business is not needed
    // any more. Blocks for `patience` at most.
    [[nodiscard]] bool ended_at_once(Millis patience);

    // Until the workload has ended, its output is drained and the exit is recorded. Clients that
    // wait have been answered when it returns. `not_yet_running` is the event of a launch whose
    // running state was not committed: both go into one commit.
    [[nodiscard]] Result<ledger::Exit> keep(std::optional<audit::Launched> not_yet_running);

    // After keep(): what ended it, and shim.sock for whoever comes next (invalid when there was
    // none yet).
    EndCause cause() const noexcept { return cause_; }
    sys::Deadline ttl() const noexcept { return ttl_; }  // an update may have moved it
    sys::UniqueFd take_listener() noexcept { return std::move(listener_); }

private:
    struct Client;
    struct Visitor {
        explicit Visitor(channel::Knock k) : knock(std::move(k)) {}
        channel::Knock knock;
        Loop::Token watch = 0;
        Loop::Token timer = 0;
    };

    void on_client(std::uint64_t number);
    void drop_client(std::uint64_t number);
    void serve(Client& client, const Request& request, std::vector<sys::UniqueFd> fds);
    bool serve_session(Client& client, const Request& request, std::vector<sys::UniqueFd> fds);
    void answer(Client& client, const Reply& reply);
    void accept_client();
    void accept_visitor();
    void on_visitor(std::uint64_t number);
    void drop_visitor(std::uint64_t number);
    [[nodiscard]] Status let_in(channel::Knock& knock);

    void on_service();
    bool take_message(const wire::SessionMessage& message);  // true: it was the last one
    void on_init_channel();
    void on_init_gone();
    [[nodiscard]] Status watch_console();
    ssize_t read_console();
    void drain_console();
    void save_console();
    std::uint64_t guest_oom_kills();
    bool power_off_guest();
    void await_power_off();
    void on_session_over(const wire::SessionEnded& over);
    void give_up_on_output();
    void end_as_faulty(const char* control, std::string why);
    [[nodiscard]] Status halt_machine();
    [[nodiscard]] Status continue_machine();
    void set_guest_clock();
    void rotate_guest_nonce();
    [[nodiscard]] Status signal_in_guest(const std::string& session, int signal);
    void signal_workload(int signal);
    void send_signal(int signal);
    void begin_stop(Millis timeout, EndCause cause, std::string why);
    void blame(EndCause cause) noexcept;
    [[nodiscard]] Status watch_guest();
    [[nodiscard]] Status start_watching();
    [[nodiscard]] Status watch_lifecycle();
    void move_ttl(std::optional<Millis> before, std::optional<Millis> now);
    void on_health(Health health);
    [[nodiscard]] Status pause_workload(std::uint32_t generation);
    [[nodiscard]] Status resume_workload(std::uint32_t generation, std::string why);
    [[nodiscard]] Status update_plan(const UpdateRequest& request);
    void thaw_after(std::string why);
    bool is_busy();
    void save_end() const;
    void end(ledger::Exit exit, std::string why = {});
    void kill_everything();
    [[nodiscard]] Status watch_log();
    void on_log_worker_ended();
    void await_log();
    void on_drained();
    void finish();

    Generation& generation_;
    Journal& journal_;
    Loop loop_;
    sys::UniqueFd listener_;
    sys::UniqueFd door_;
    std::map<std::uint64_t, std::shared_ptr<Client>> clients_;
    std::map<std::uint64_t, std::shared_ptr<Visitor>> visitors_;
    std::uint64_t next_number_ = 1;
    std::optional<Loop::Token> service_watch_;
    std::optional<Loop::Token> init_watch_;
    std::optional<Loop::Token> log_watch_;
    bool log_is_drained_ = false;
    std::optional<Loop::Token> console_watch_;
    Ring console_{kConsoleBytes};
    std::optional<ledger::Exit> exit_;
    std::string exit_why_;
    bool over_ = false;  // nothing more to wait for
    // Why the workload's end is not its own; `cause_` is the same for people and the restart
    // policy.
    enum class Ending { none, stopping, timed_out, killed, faulty } ending_ = Ending::none;
    EndCause cause_ = EndCause::workload;
    bool paused_ = false;
    bool powering_off_ = false;
    std::optional<driver::microvm::Qmp> vmm_;  // once it was paused
    std::optional<wire::Exit> service_over_;  // told beside its stream
    sys::Deadline ttl_;
    std::int64_t started_ns_ = sys::boottime_ns();
    // Watch through loop_, which stands above them.
    std::optional<GuestEvents> guest_events_;
    std::optional<Clocks> clocks_;
    std::optional<OomWatch> oom_;
    std::optional<HealthCheck> health_;
    std::optional<Sessions> sessions_;
};

}  // namespace sandbox::shim
