// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/strong.hpp"
#include "sys/fd.hpp"
#include "sys/process.hpp"

// The values the ledger keeps (docs/formats/ledger.md). Pure: no clock, no file, no process
// look-up.
namespace sandbox::ledger {

// Where a sandbox rests while nothing acts on it (design: states).
enum class State {
    requested,
    resolved,
    prepared,
    created,
    running,
    paused,
    stopped,  // ended in order; the exit is recorded
    failed,  // never came to run: a launch step failed and was unwound
    dead,  // its shim vanished; what it owned was unwound
    deleted,  // kept only for its logs and its history
};

// What somebody wants of it; a reconcile works from State towards this.
enum class Desired { running, stopped, deleted };

// The one table of legal transitions. `deleted` is reachable from every state (rm -f).
bool may_become(State from, State to) noexcept;
// requested … paused: something may exist in the kernel for it.
bool is_active(State state) noexcept;

// A process is pid, start time, boot id and pidfd inode, never a bare number; a file, folder or
// cgroup is device and inode.
using sys::FileIdentity;
using sys::ProcessIdentity;

// Host uids and gids [first, first + count).
struct IdRange {
    std::uint32_t first = 0;
    std::uint32_t count = 0;
    bool operator==(const IdRange&) const = default;
};

// When something happened: for people (utc), for order and deadlines (boottime within boot_id).
struct Moment {
    std::string utc;  // RFC 3339, milliseconds, "Z"
    std::uint64_t boottime_ns = 0;  // CLOCK_BOOTTIME
    std::string boot_id;
    bool operator==(const Moment&) const = default;
};

// Who ended it: the workload itself (exited, signal), the kernel's OOM killer, its time limit, a
// kill or stop of ours, nobody can tell (its shim died first), or it was killed because what speaks
// for it inside broke the protocol or fell silent (faulty).
enum class ExitReason { exited, signal, oom, timeout, killed, unknown, faulty };

struct Exit {
    std::int32_t code = 0;  // 0–255; 128 + signal when a signal ended it
    std::int32_t signal = 0;  // 0: none
    ExitReason reason = ExitReason::unknown;
    std::uint64_t oom_kills = 0;
    bool operator==(const Exit&) const = default;
};

// Whether the sandbox is removed as soon as its exit is recorded (`run --rm`).
enum class RemoveOnExit { no, yes };

// One sandbox as a row. A copy of what was committed: it does not follow later changes.
struct Sandbox {
    SandboxId id;
    SandboxName name;  // unique among sandboxes that are not `deleted`
    std::string profile;
    std::string driver;  // "oci", "microvm", "native"
    std::string isolation_class;  // "hardware-vm", "emulated-vm", "shared-kernel"
    std::string plan_digest;  // empty before `resolved`
    std::string plan_path;  // absolute host path of plan.json; empty before `resolved`
    std::string log_path;  // absolute host path of the log folder; survives `deleted`
    Desired desired = Desired::running;
    State state = State::requested;
    std::uint32_t generation = 0;  // 0 until the first start; each start adds one
    Moment created;
    std::optional<ProcessIdentity> shim;
    std::optional<ProcessIdentity> pid1;
    std::optional<IdRange> ids;
    RemoveOnExit remove_on_exit = RemoveOnExit::no;
    std::string labels = "{}";  // canonical JSON object of strings
    std::optional<Exit> exit;  // of `generation`
    bool exit_delivered = false;  // a client has been given `exit`
    std::string request_digest;
    bool operator==(const Sandbox&) const = default;
};

// Nothing of it runs and it may be started: created, stopped, failed or dead.
bool rests(const Sandbox& sandbox) noexcept;

// Why a sandbox is kept as it is: a person applied a file, or a file lies in profiles.d.
enum class Origin { apply, profiles_d };

// Desired state: a sandbox that a file stands behind. Gone with its row.
struct Managed {
    SandboxId sandbox;
    Origin origin = Origin::apply;
    std::string source;  // absolute path of the file
    bool operator==(const Managed&) const = default;
};

// Closed set. Each kind is applied, observed and undone in one place (driver/resources).
enum class EntryKind {
    id_range,  // name: "FIRST+COUNT"
    state_dir,  // STATE/sandboxes/ID
    run_dir,  // RUN/ID
    cgroup_root,  // PARENT/ID, below the hierarchy roots (every hierarchy in use)
    cgroup_control,  // PARENT/ID/control
    cgroup_workload,  // PARENT/ID/workload
    cgroup_session,  // PARENT/ID/workload/SESSION
    placeholder,  // host file or folder made so that a mask has a target; absolute path
    shim_process,  // "shim:ID"
    log_worker,  // "log:ID"
    pid1_process,  // "pid1:ID"
    launcher_process,  // "launcher:ID": crun or the VMM's parent
    door_socket,  // RUN/ID/v.sock
    shim_socket,  // RUN/ID/shim.sock
    log_files,  // STATE/sandboxes/ID/logs: kept when the sandbox is removed
};

// intent: it may exist; observed: it did, under `identity`; undone: proven absent, and never more.
enum class EntryState { intent, observed, undone };

struct Entry {
    SandboxId sandbox;
    std::uint64_t seq = 0;  // order of all entries of the ledger; undo runs from high to low
    std::uint32_t generation = 0;
    EntryKind kind = EntryKind::id_range;
    std::string name;
    EntryState state = EntryState::intent;
    std::string identity;  // canonical JSON from encode(); empty until observed
    bool operator==(const Entry&) const = default;
};

// done: `result` is final; lost: its holder died or was late, somebody else took over.
enum class OperationState { active, done, lost };

// An operation that acts, acted, or died acting on a sandbox. While `active` it is the claim.
struct Claim {
    std::string operation;  // id chosen by the caller; unique
    SandboxId sandbox;
    std::string verb;
    std::string request_digest;
    ProcessIdentity holder;
    std::string step;  // what it was doing, for people and for take-over
    std::uint64_t deadline_ns = 0;  // CLOCK_BOOTTIME within holder.boot_id
    OperationState state = OperationState::active;
    std::string result;  // JSON given to whoever repeats the operation
    bool operator==(const Claim&) const = default;
};

// Head of the audit chain: a cut or an edited log shows against it.
struct AuditHead {
    std::uint64_t seq = 0;
    std::string digest;  // of the last line; empty before the first
    bool operator==(const AuditHead&) const = default;
};

// The words of the file and of the API. parse_* give nullopt for every other text.
std::string_view to_string(State value) noexcept;
std::string_view to_string(Desired value) noexcept;
std::string_view to_string(ExitReason value) noexcept;
std::string_view to_string(Origin value) noexcept;  // "apply", "profiles.d"
std::string_view to_string(EntryKind value) noexcept;
std::string_view to_string(EntryState value) noexcept;
std::string_view to_string(OperationState value) noexcept;
std::optional<State> parse_state(std::string_view text) noexcept;
std::optional<Desired> parse_desired(std::string_view text) noexcept;
std::optional<ExitReason> parse_exit_reason(std::string_view text) noexcept;
std::optional<Origin> parse_origin(std::string_view text) noexcept;
std::optional<EntryKind> parse_entry_kind(std::string_view text) noexcept;
std::optional<EntryState> parse_entry_state(std::string_view text) noexcept;
std::optional<OperationState> parse_operation_state(std::string_view text) noexcept;

// Identities as canonical JSON, and back; anything else is Code::corrupt.
std::string encode(const ProcessIdentity& identity);
std::string encode(const FileIdentity& identity);
std::string encode(const IdRange& range);
// decode_* are strict: exactly the fields that encode() writes, in range.
[[nodiscard]] Result<ProcessIdentity> decode_process(std::string_view text);
[[nodiscard]] Result<FileIdentity> decode_file(std::string_view text);
[[nodiscard]] Result<IdRange> decode_range(std::string_view text);

// 32 lower-case hex digits: the form of every sandbox id, and of every folder and cgroup of ours.
bool is_sandbox_id(std::string_view text) noexcept;

}  // namespace sandbox::ledger
