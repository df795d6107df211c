// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/result.hpp"
#include "base/strong.hpp"
#include "canon/canon.hpp"
#include "plan/plan.hpp"

// What happened to each launch, one event a record. Values only: whoever appends them to
// audit.jsonl owns the file, the clock and the head kept in the ledger.
// File format: docs/formats/audit.md.
namespace sandbox::audit {

inline constexpr int kAuditVersion = 1;

// One control, planned and seen. `observed` is what the kernel said, never what we wrote.
struct ControlEvidence {
    std::string name;
    std::string mechanism;
    std::string planned;
    std::string observed;
    bool held = false;
    bool operator==(const ControlEvidence&) const = default;
};

// A plan was made. Written before anything is prepared.
struct Resolved {
    std::string plan_digest;
    std::string policy_digest;
    std::string profile;                           // its name
    std::string driver;                            // "oci"
    std::string isolation;                         // asked for: "microvm" | "sandbox"
    std::string isolation_class;                   // given: "shared-kernel", …
    bool shared_kernel_acknowledged = false;  // the profile says isolation = "sandbox" itself
    std::vector<plan::Control> controls;  // planned
    std::vector<plan::Unenforced> unenforced;
    std::map<std::string, std::string> artifacts;  // name -> digest or version
    std::vector<std::string> warnings;
    bool operator==(const Resolved&) const = default;
};

// One reason the resolver refused; the fields of a denial in their published spelling.
struct Refusal {
    std::string denial_class;  // "POLICY_DENIED"
    std::string reason;
    std::string key;
    std::string requirement;
    std::string fact;
    std::string mend;
    SourceLocation source;
    bool operator==(const Refusal&) const = default;
};

struct Denied {
    std::string profile;
    std::string policy_digest;
    std::vector<Refusal> denials;
    bool operator==(const Denied&) const = default;
};

// Every mandatory control was witnessed; the gate opens next.
struct Launched {
    std::string plan_digest;
    std::string driver;
    std::string isolation_class;
    bool shared_kernel_acknowledged = false;
    std::string artifact_digest;  // of the compiled artifact: OCI config.json
    std::map<std::string, std::string> bpf;  // filter name ("outer", "inner") -> digest as loaded
    std::map<std::string, std::string> artifacts;  // name -> digest or version as executed
    std::vector<ControlEvidence> controls;
    bool operator==(const Launched&) const = default;
};

// A launch that ended before the gate: nothing of the workload has run.
struct LaunchFailed {
    std::string plan_digest;
    std::string step;  // "evidence", "create", …
    std::string why;
    std::vector<ControlEvidence> controls;  // as far as they were read
    bool operator==(const LaunchFailed&) const = default;
};

// A session by exec was opened. Arguments may hold secrets: only their digest is kept.
struct SessionOpened {
    std::string session;
    std::string argv_digest;
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
    bool operator==(const SessionOpened&) const = default;
};

// Something pushed against a control: an OOM kill, the pid limit, a filtered call.
struct Violation {
    std::string control;  // "limit.memory"
    std::string detail;
    std::uint64_t count = 0;
    bool operator==(const Violation&) const = default;
};

// Lifecycle acts by a person or by us: create, start, stop, kill, pause, resume, rm, timeout, ttl,
// idle.
struct Acted {
    std::string verb;
    std::string why;
    bool operator==(const Acted&) const = default;
};

struct Exited {
    std::string session;  // empty: the main process
    std::optional<std::int32_t> code;
    std::optional<std::int32_t> signal;
    std::string reason;  // "exited" "signal" "oom" "timeout" "killed" "unknown" "faulty"
    std::uint64_t oom_kills = 0;
    bool operator==(const Exited&) const = default;
};

// One kernel or disk object of a sandbox at its end.
struct ReceiptItem {
    std::string kind;  // "cgroup", "mount", "process", "file", …
    std::string subject;
    bool made = false;
    bool destroyed = false;
    bool gone = false;  // looked for afterwards and absent
    bool operator==(const ReceiptItem&) const = default;
};

struct Cleaned {
    std::vector<ReceiptItem> items;
    bool operator==(const Cleaned&) const = default;
    bool complete() const noexcept;  // everything made is proven gone
};

struct ReconcileAction {
    std::string subject;
    std::string action;  // "removed", "taken over", "left alone", …
    std::string outcome;  // "gone", or why not
    bool operator==(const ReconcileAction&) const = default;
};

struct Reconciled {
    std::uint64_t sandboxes = 0;  // looked at
    std::vector<ReconcileAction> actions;
    bool operator==(const Reconciled&) const = default;
};

// The shim starts the sandbox again by its restart policy; its next generation follows the pause.
struct Restarting {
    std::uint32_t attempt = 0;  // in a row, this one counted
    std::optional<std::uint32_t> most;  // max_restarts
    std::uint64_t delay_ms = 0;
    std::string why;  // "exit status 1", "unhealthy", …
    bool operator==(const Restarting&) const = default;
};

// Written when it changes, not for every check.
struct HealthChanged {
    std::string health;  // "healthy" "unhealthy"
    std::uint32_t failures = 0;  // in a row
    std::string detail;  // of the last check that failed
    bool operator==(const HealthChanged&) const = default;
};

// Live keys of another plan were applied to a sandbox that runs; the limits as read back.
struct Updated {
    std::string previous_digest;
    std::string plan_digest;
    std::vector<ControlEvidence> controls;
    bool operator==(const Updated&) const = default;
};

// Desired state did something to a sandbox, or could not; `source` is the file behind it.
struct Applied {
    std::string action;  // "create" "start" "update" "replace" "remove" "keep" "refuse"
    std::string source;
    std::string plan_digest;  // wanted; empty where nothing is
    std::string previous_digest;  // of what was there; may be empty
    std::vector<std::string> keys;  // of the profile that differ
    std::string why;
    std::string failure;  // empty: it was done
    bool operator==(const Applied&) const = default;
};

using Body = std::variant<Resolved, Denied, Launched, LaunchFailed, SessionOpened, Violation, Acted,
                          Exited, Cleaned, Reconciled, Restarting, HealthChanged, Updated, Applied>;

// "resolved" "denied" "launched" "launch-failed" "session-opened" "violation" "acted" "exited"
// "cleaned" "reconciled" "restarting" "health" "updated" "applied", in the order of Body.
std::string_view event_name(const Body& body) noexcept;

// Who the event is about and when it was; all of it given by the caller.
struct Subject {
    SandboxId id;  // empty for events of no sandbox (reconciled, a denied plan)
    SandboxName name;
    std::uint32_t generation = 0;
    std::string operation;  // operation id; may be empty
    std::string time;  // RFC 3339, UTC: "2026-01-02T03:04:05.678Z"
    bool operator==(const Subject&) const = default;
};

struct AuditRecord {
    Subject subject;
    Body body;
    bool operator==(const AuditRecord&) const = default;
};

// Without the chain fields `seq` and `prev`. Text from outside that is not UTF-8 is escaped first.
canon::Json to_json(const AuditRecord& record);
// Strict: unknown and missing keys, wrong types and other versions are refused. Chain fields are
// accepted and ignored.
[[nodiscard]] Result<AuditRecord> record_from_json(const canon::Json& json);

Resolved resolved(const plan::ExecutionPlan& plan);

// The chain's end: the digest of the last line's bytes (without newline) and how many lines there
// are. An empty log has Head{}.
struct Head {
    std::uint64_t seq = 0;
    std::string digest = std::string(kGenesis);
    bool operator==(const Head&) const = default;

    static constexpr std::string_view kGenesis =
        "sha256:0000000000000000000000000000000000000000000000000000000000000000";
};

struct Line {
    std::string text;  // canonical JSON, no newline
    Head head;  // to be kept in the ledger with it
};

// The next line of the log: `seq` is head.seq + 1 and `prev` is head.digest.
[[nodiscard]] Result<Line> next_line(const Head& head, const AuditRecord& record);

struct Broken {
    std::uint64_t line = 0;  // counted from 1; one past the end when the log was cut
    std::string why;
    bool operator==(const Broken&) const = default;
};

// Checks a log line by line, so that its size does not matter.
class Verifier {
public:
    explicit Verifier(Head start = {}) : head_(std::move(start)) {}

    // False once broken; further lines are then ignored.
    bool feed(std::string_view line);
    // `expected` is the head kept in the ledger. Nothing when all is well.
    std::optional<Broken> finish(const Head& expected) const;
    const Head& head() const noexcept { return head_; }

private:
    Head head_;
    std::optional<Broken> broken_;
};

// A whole log, lines ended by newlines. The first broken line and why; nothing when all is well.
std::optional<Broken> verify(std::string_view log, const Head& expected);

// One record for people: a headline, then details indented; untrusted text escaped.
std::string render(const AuditRecord& record);
// Planned beside observed, one control a line, those not held first. For `inspect` and `run`.
std::string render_evidence(const std::vector<ControlEvidence>& controls);
// What `audit verify` prints.
std::string render_verdict(const std::optional<Broken>& broken, const Head& head);

}  // namespace sandbox::audit
