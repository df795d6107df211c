// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "audit/audit.hpp"
#include "base/diagnostic.hpp"
#include "base/result.hpp"
#include "driver/driver.hpp"
#include "facts/facts.hpp"
#include "ledger/records.hpp"
#include "plan/plan.hpp"
#include "policy/policy.hpp"
#include "profile/types.hpp"
#include "resolve/resolve.hpp"
#include "supervisor/reconcile.hpp"

// What a client may ask of sandboxes; the same in process and over the daemon's socket. Everything
// here is a value or borrowed for the length of one call; a reference is a name or an unambiguous
// id prefix.
namespace sandbox::supervisor {

// A profile as a person named it, already read.
struct ProfileText {
    std::string file;  // for diagnostics: a path or "<stdin>"
    std::string text;
};

// What one invocation adds to a profile. Only what a person at the prompt may say: none of it can
// name a driver or widen a grant.
struct Adjustments {
    std::vector<std::string> argv;           // replaces process.argv when not empty
    std::map<std::string, std::string> env;  // added to process.env
    std::optional<bool> terminal;            // replaces process.terminal (run -t)
    std::optional<ProfileText> overlay;
};

struct ProfileErrors {
    std::vector<Diagnostic> diagnostics;
};

// Exactly one of: a plan, the reasons there is none (all of them, in a stable order), a profile
// that does not parse.
using PlanOutcome = std::variant<plan::ExecutionPlan, std::vector<resolve::Denial>, ProfileErrors>;

// foreground: the call lasts as long as the workload or session, and carries its streams; detached:
// it returns as soon as that runs.
enum class Attach { foreground, detached };
enum class Keep { until_removed, remove_on_exit };
enum class Stdin { closed, open };

// What a person at a terminal does while something of theirs runs in the foreground.
struct Steer {
    enum class Kind { signal, resize, detach };
    Kind kind = Kind::signal;
    int signal = 0;
    std::uint16_t rows = 0;
    std::uint16_t cols = 0;
};
// Borrowed by a call; asked from the thread of that call only.
class Steering {
public:
    virtual ~Steering() = default;
    virtual int fd() const = 0;  // readable when next() has something
    // The next one, without waiting; nothing when there is none.
    virtual std::optional<Steer> next() = 0;
};

// The streams of one foreground run, exec or attach: descriptors of the caller, borrowed until the
// call returns; -1 is none. They are spliced, never handed to a workload.
struct Console {
    int in = -1;
    int out = -1;
    int err = -1;
    bool terminal = false;  // in and out are a terminal in raw mode, rows and cols its size
    std::uint16_t rows = 0;
    std::uint16_t cols = 0;
    std::string term;  // $TERM of the caller
    std::string detach_keys;  // bytes that end an attachment and nothing else; empty: none
    Steering* steering = nullptr;
};

// A launch. A request whose `resolved` holds no plan is recorded in the audit log and refused.
struct RunRequest {
    explicit RunRequest(PlanOutcome outcome) : resolved(std::move(outcome)) {}

    PlanOutcome resolved;  // from plan() or plan_again()
    std::string name;  // empty: "<profile>-<6 hex>"
    Attach attach = Attach::foreground;
    Keep keep = Keep::until_removed;
    Stdin stdin_mode = Stdin::closed;
    Console console{.out = 1, .err = 2};
    std::optional<ledger::Managed> managed;  // desired state: recorded with the sandbox
};

// 125 is "our failure" until a workload has given its own (podman's habit; docs/api.md).
struct RunResult {
    SandboxId id;
    SandboxName name;
    std::optional<ledger::Exit> exit;  // nothing when detached
    int exit_status = 125;  // what the program exits with
    std::string why;  // of a failed launch
};

// A further process in a running sandbox, in a leaf, a session and under limits of its own.
struct ExecRequest {
    std::string reference;
    std::vector<std::string> argv;
    std::map<std::string, std::string> env;
    std::optional<profile::User> user;  // the profile's when not said; others are refused
    std::string cwd;  // empty: the profile's
    std::optional<std::chrono::milliseconds> timeout;
    Attach attach = Attach::foreground;
    bool terminal = false;
    std::string expect_plan;  // refuse unless the sandbox runs the plan of this digest
    Console console;
};

// Back to a session that was left: detached, or left by its detach keys.
struct AttachRequest {
    std::string reference;
    std::string session;  // empty: the profile's process
    std::optional<std::uint64_t> out_offset;  // continue behind this byte; nothing: from now on
    std::optional<std::uint64_t> err_offset;
    Console console;
};

struct SessionResult {
    std::string session;
    std::optional<ledger::Exit> exit;  // nothing when detached
    int exit_status = 125;
    std::string why;  // why it could not be executed
    std::uint64_t out_offset = 0;  // bytes delivered or skipped so far, for a later attach
    std::uint64_t err_offset = 0;
};

// A session as it was when asked; offsets are bytes of its streams so far.
struct SessionInfo {
    std::string session;  // "s2"
    std::vector<std::string> argv;
    bool terminal = false;
    bool running = false;
    bool attached = false;
    std::int32_t pid = 0;  // on the host; 0 when ended
    std::string started;  // RFC 3339
    std::uint64_t out_offset = 0;
    std::uint64_t err_offset = 0;
    std::optional<ledger::Exit> exit;
};

// One look at what a sandbox uses, from its own cgroups.
struct Stats {
    SandboxId id;
    SandboxName name;
    std::uint64_t memory_bytes = 0;
    std::optional<std::uint64_t> memory_limit;
    std::uint64_t memory_peak = 0;
    std::uint64_t cpu_ns = 0;  // used since the start of the generation
    std::uint64_t throttled_ns = 0;
    std::uint64_t pids = 0;
    std::optional<std::uint64_t> pids_limit;
    std::uint64_t oom_kills = 0;
    std::uint64_t moment_ns = 0;  // CLOCK_BOOTTIME of the look
};

// Files between the caller and a sandbox. Exactly one side is a sandbox; the stream is a tar
// archive (ustar/pax), read from or written to `stream`.
struct CopyRequest {
    std::string reference;
    std::string path;  // inside; absolute or below the profile's cwd
    enum class Way { into, out_of } way = Way::into;
    // named: into the path where it is a folder, else under its name. content: what the archive
    // holds, into the folder of that path. Of no meaning out of a sandbox: the path's end says it.
    enum class Landing { named, content } landing = Landing::named;
    int stream = -1;
    std::uint64_t most_bytes = 0;  // 0: the built-in cap
};
struct CopyResult {
    std::uint64_t files = 0;
    std::uint64_t bytes = 0;
    std::string notes;  // what was left out, one a line; from inside, so escape it
};

// What happened, oldest first: the audit log's lifecycle, one event a call. Returning false from
// the sink ends the call.
struct EventQuery {
    std::string reference;  // empty: all
    std::uint64_t after = 0;  // sequence number of the last one seen
    bool follow = false;
    std::string since;  // RFC 3339, UTC, milliseconds; empty: from the beginning
};
using EventSink = std::function<bool(const canon::Json& event)>;

// What should be, by files. The caller has read them; the service resolves every one before it
// touches any sandbox.
struct ApplyRequest {
    std::vector<ProfileText> files;  // `file` is absolute: it is recorded as the sandbox's source
    std::optional<ProfileText> plan;  // a plan file instead (resolved again; refused if it differs)
    // Folders that `files` are the whole of: sandboxes of other files of them are removed.
    std::vector<std::string> folders;
    enum class Mode { act, look } mode = Mode::act;  // look: say what would be done
    // A person's word starts what has ended; a pass of the daemon starts it once a boot.
    enum class Asker { person, pass } asker = Asker::person;
};

struct Applied {
    enum class Action { nothing, create, start, update, replace, remove, keep, refuse };
    Action action = Action::nothing;
    std::string name;  // of the sandbox; empty when the file does not say
    std::string source;  // file
    std::string plan_digest;  // of what is to run
    std::vector<plan::Change> changes;  // key by key, each with its class
    std::vector<plan::Change> pending;  // of host or release: hold from the next start on
    std::string why;  // a sentence for people
    ProfileErrors errors;  // why the file is refused, if so …
    std::vector<resolve::Denial> denials;  // … or the plan
    std::string failure;  // why the action did not succeed; empty: it did
    bool changed() const noexcept;  // something is to be done, or was
    bool bad() const noexcept;  // refused or failed
};
std::string_view to_string(Applied::Action action) noexcept;

struct ApplyResult {
    std::vector<Applied> items;  // files in order, then what goes
};

// One row of `ps`. `shim_alive` is of the moment of the look.
struct Listed {
    ledger::Sandbox sandbox;
    bool shim_alive = false;
    // CLOCK_BOOTTIME of the next attempt, while the restart policy waits for it.
    std::optional<std::uint64_t> restart_due_ns = std::nullopt;
};

struct LogQuery {
    std::string reference;
    bool follow = false;
};
// One stored record as shim/log_record.hpp writes it, without its newline. Returning false ends the
// call.
using LogSink = std::function<bool(std::string_view record)>;

// The verbs. Blocking calls, one at a time; an object belongs to one thread. Errors, unless a verb
// says more: not_found and conflict (ambiguous) for the reference, conflict when the sandbox's
// state does not allow the verb or somebody else holds it, unavailable when its shim or the service
// is gone, denied when policy or a control says no, and the ledger's own (corrupt, io,
// resource_exhausted).
class SandboxService {
public:
    SandboxService() = default;
    SandboxService(const SandboxService&) = delete;
    SandboxService& operator=(const SandboxService&) = delete;
    virtual ~SandboxService() = default;

    // Resolves against this host, or against a snapshot saved elsewhere. Pure but for what the
    // service read when it was opened. A refusal is an outcome, not an Error.
    [[nodiscard]] virtual Result<PlanOutcome> plan(const ProfileText& profile,
                                                   const Adjustments& adjustments,
                                                   const facts::CapabilitySnapshot* elsewhere) = 0;
    // Resolves the request a plan file carries again; a different result names the keys.
    [[nodiscard]] virtual Result<PlanOutcome> plan_again(std::string_view plan_file) = 0;

    // Blocks until the workload ends, or, detached, until it runs. already_exists: the name is
    // taken; resource_exhausted: as many run as may, no ids, or no disk.
    [[nodiscard]] virtual Result<RunResult> run(const RunRequest& request) = 0;
    // Everything up to the gate's first step: ledger row, ids, plan. Nothing runs.
    [[nodiscard]] virtual Result<RunResult> create(const RunRequest& request) = 0;
    // A new generation of what was created or has ended, under the same plan.
    [[nodiscard]] virtual Result<RunResult> start(std::string_view reference, Attach attach,
                                                  const Console& console) = 0;
    [[nodiscard]] virtual Status restart(std::string_view reference,
                                         std::optional<std::chrono::milliseconds> timeout) = 0;
    [[nodiscard]] virtual Status pause(std::string_view reference) = 0;
    [[nodiscard]] virtual Status resume(std::string_view reference) = 0;
    // Puts off idle_timeout.
    [[nodiscard]] virtual Status touch(std::string_view reference) = 0;
    [[nodiscard]] virtual Result<Stats> stats(std::string_view reference) = 0;
    [[nodiscard]] virtual Status events(const EventQuery& query, const EventSink& sink) = 0;

    [[nodiscard]] virtual Result<SessionResult> exec(const ExecRequest& request) = 0;
    [[nodiscard]] virtual Result<SessionResult> attach(const AttachRequest& request) = 0;
    [[nodiscard]] virtual Result<std::vector<SessionInfo>> sessions(std::string_view reference) = 0;
    [[nodiscard]] virtual Status signal_session(std::string_view reference,
                                                std::string_view session, int signal) = 0;
    [[nodiscard]] virtual Result<CopyResult> copy(const CopyRequest& request) = 0;

    // Brings sandboxes to what the files say. What is wrong with one file is in its item and stops
    // no other; the call itself fails only when nothing could be looked at.
    [[nodiscard]] virtual Result<ApplyResult> apply(const ApplyRequest& request) = 0;

    // Never waits for a writer: what was committed when it was asked.
    [[nodiscard]] virtual Result<std::vector<Listed>> list(bool all) = 0;
    [[nodiscard]] virtual Result<canon::Json> inspect(std::string_view reference) = 0;
    [[nodiscard]] virtual Result<plan::ExecutionPlan> plan_of(std::string_view reference) = 0;
    // Oldest first; with follow until the sandbox has ended and its last line is written.
    [[nodiscard]] virtual Status logs(const LogQuery& query, const LogSink& sink) = 0;

    // Idempotent: success for what has ended. Blocks up to the time-out (the profile's when not
    // said), then the workload is killed.
    [[nodiscard]] virtual Status stop(std::string_view reference,
                                      std::optional<std::chrono::milliseconds> timeout) = 0;
    // One signal to the main process, and no waiting for what comes of it.
    [[nodiscard]] virtual Status kill(std::string_view reference, int signal) = 0;
    // Blocks until the present generation has its exit; at once when it has.
    [[nodiscard]] virtual Result<ledger::Exit> wait(std::string_view reference) = 0;
    enum class Force { no, yes };
    // Removes row and folders, keeps the logs. Force ends what runs first, in any state; without it
    // a running one is conflict. Idempotent towards another rm at the same time.
    [[nodiscard]] virtual Status remove(std::string_view reference, Force force) = 0;

    // Full reconcile; see reconcile.hpp. Safe at any time.
    [[nodiscard]] virtual Result<Report> reconcile() = 0;
    // The first break of the chain, or nothing; `head` becomes the head found in the file.
    [[nodiscard]] virtual Result<std::optional<audit::Broken>> verify_audit(audit::Head& head) = 0;
};

}  // namespace sandbox::supervisor
