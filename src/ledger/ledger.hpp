// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/strong.hpp"
#include "ledger/records.hpp"

namespace sandbox::ledger {

// The newest schema this release reads and writes; stored as SQLite's user_version. A file with a
// higher number is refused (Code::unavailable), one with a lower is migrated when opened for
// writing.
inline constexpr int kSchemaVersion = 2;
inline constexpr std::string_view kFileName = "ledger.db";
// Rows of removed sandboxes kept for `logs NAME`; the oldest go first. A choice of ours.
inline constexpr std::uint32_t kKeepDeleted = 1000;

// create: makes the file where there is none; the other two then give Code::not_found.
enum class OpenMode { read_only, read_write, create };
enum class CompactWhen { now, large };  // large: not while the WAL is short and quickly read
enum class ListScope { live, all };  // live: not `deleted`

// The current moment, read from CLOCK_REALTIME, CLOCK_BOOTTIME and the kernel's boot id. Fails only
// where /proc cannot be read.
[[nodiscard]] Result<Moment> now();

// 16 bytes from getrandom(2), as 32 hex digits.
[[nodiscard]] Result<SandboxId> new_sandbox_id();

// Ids for sandboxes: `ranges` ranges of 65536 from `first` on. 65536 ids hold every uid of a usual
// distribution, with 65534 ("nobody") among them.
struct IdPool {
    std::uint32_t first = 0;
    std::uint32_t ranges = 0;
};
inline constexpr std::uint32_t kIdsPerRange = 65536;

// One side effect about to start. Recorded before it starts, so that a crash at any point leaves a
// name to look for.
struct Intent {
    EntryKind kind = EntryKind::id_range;
    std::string name;  // derived from the sandbox id (driver/resources has the rules)
};

// A wish to act on a sandbox. At most one operation acts on a sandbox at a time; the claim is a
// lease that ends with its holder, its boot or its deadline.
struct ClaimRequest {
    std::string operation;
    SandboxId sandbox;
    std::string verb;
    std::string request_digest;
    ProcessIdentity holder;
    std::string step;
    std::uint64_t deadline_ns = 0;  // CLOCK_BOOTTIME
};

// True while that very process lives. Called with the write lock held: must not block.
using Alive = std::function<bool(const ProcessIdentity&)>;

struct ClaimOutcome {
    enum class Kind {
        acquired,  // free before, or already held by this same holder for this operation
        taken_over,  // `previous` is what its holder, now dead or late, was doing
        recorded,  // this operation is done: `result` is what it gave; nothing is to be done
    };
    Kind kind = Kind::acquired;
    std::optional<Claim> previous;
    std::string result;
};

// An audit line on its way to the log; `line` has no newline.
struct QueuedLine {
    std::uint64_t seq = 0;
    std::string line;
    bool operator==(const QueuedLine&) const = default;
};

class Connection;  // private to this folder

// One write transaction (BEGIN IMMEDIATE: the write lock is held from Ledger::begin to commit, so
// do no slow work in between). Everything in it becomes durable together at commit(), once, or not
// at all; destroying it without commit rolls back. After a call failed, only rolling back is legal.
// At most one per Ledger, and the Ledger outlives it. Not thread-safe.
class Transaction {
public:
    Transaction(Transaction&&) noexcept;
    Transaction& operator=(Transaction&&) = delete;
    ~Transaction();

    // Durable when this returns success (WAL, synchronous=FULL). On failure nothing is stored.
    [[nodiscard]] Status commit();

    // already_exists: the id, or the name of a sandbox that is not deleted. invalid_argument: bad
    // id.
    [[nodiscard]] Status insert(const Sandbox& sandbox);
    // Reads as the transaction sees it.
    [[nodiscard]] Result<Sandbox> get(const SandboxId& id);
    // Rewrites everything but id, state, generation, exit, exit_delivered and ids, which have their
    // own calls below: plan, driver, desired, shim, pid1, labels, paths, flags.
    [[nodiscard]] Status update(const Sandbox& sandbox);
    // conflict: not a legal transition. `deleted` also needs every entry but log_files undone.
    [[nodiscard]] Status set_state(const SandboxId& id, State to);
    [[nodiscard]] Status set_desired(const SandboxId& id, Desired desired);
    // A file stands behind the sandbox from now on, in place of one that did before.
    [[nodiscard]] Status set_managed(const Managed& managed);
    [[nodiscard]] Status set_shim(const SandboxId& id, const ProcessIdentity& shim);
    [[nodiscard]] Status set_pid1(const SandboxId& id, const ProcessIdentity& pid1);
    // A new start: generation + 1, exit, shim and pid1 cleared. Returns the new generation.
    [[nodiscard]] Result<std::uint32_t> begin_generation(const SandboxId& id);

    // Intents of the sandbox's present generation, in the order their effects will start. Returns
    // the seq of the first; the rest follow by one.
    [[nodiscard]] Result<std::uint64_t> intend(const SandboxId& id,
                                               std::span<const Intent> intents);
    // intent → observed, with encode(identity). Repeating it replaces the identity.
    [[nodiscard]] Status observed(std::uint64_t seq, std::string_view identity);
    // Its absence was proven. Repeating it is nothing.
    [[nodiscard]] Status undone(std::uint64_t seq);
    // The lowest range no live entry holds: an id_range entry (observed at once) and Sandbox::ids.
    // A sandbox that holds one keeps it. resource_exhausted: the pool is full.
    [[nodiscard]] Result<IdRange> allocate_ids(const SandboxId& id, IdPool pool);

    // Exactly once per generation: conflict when that generation has one, or is not the present
    // one.
    [[nodiscard]] Status record_exit(const SandboxId& id, std::uint32_t generation,
                                     const Exit& exit);
    // The exit, the first time it is asked for; nothing ever after (or before there is one).
    [[nodiscard]] Result<std::optional<Exit>> take_exit(const SandboxId& id);

    // conflict: another holder, alive and in time, has it (the message names it), or the operation
    // id was used with another digest. The sandbox need not exist yet: claiming may come first.
    [[nodiscard]] Result<ClaimOutcome> claim(const ClaimRequest& request, const Moment& now,
                                             const Alive& alive);
    // These three: conflict when `holder` no longer has the claim (taken over meanwhile): it must
    // stop acting at once.
    [[nodiscard]] Status set_step(std::string_view operation, const ProcessIdentity& holder,
                                  std::string_view step, std::uint64_t deadline_ns);
    // Gives the claim to another process (sandboxctl to the shim it made).
    [[nodiscard]] Status hand_over(std::string_view operation, const ProcessIdentity& holder,
                                   const ProcessIdentity& next);
    // The claim ends; `result` is given to whoever repeats the operation.
    [[nodiscard]] Status finish(std::string_view operation, const ProcessIdentity& holder,
                                std::string_view result);

    // conflict: the stored head is not `expected` (somebody appended meanwhile).
    [[nodiscard]] Status advance_audit(const AuditHead& expected, const AuditHead& next);
    // advance_audit, and the line itself waits here, durable, until somebody has written it to the
    // audit log and made it durable there: one sync on the way to a launch instead of two.
    [[nodiscard]] Status queue_audit(const AuditHead& expected, const AuditHead& next,
                                     std::string_view line);

    // Forgets the oldest deleted sandboxes beyond `keep`, with entries and operations, and returns
    // them: their folders are then the caller's to remove.
    [[nodiscard]] Result<std::vector<Sandbox>> prune(std::uint32_t keep = kKeepDeleted);

private:
    friend class Ledger;
    explicit Transaction(Connection& connection);
    [[nodiscard]] Status store(const Sandbox& sandbox);
    [[nodiscard]] Result<Entry> entry(std::uint64_t seq);
    [[nodiscard]] Result<Claim> held(std::string_view operation, const ProcessIdentity& holder);

    Connection* connection_;
};

// The journal of everything sandboxd does to its host. Many processes use the same file side by
// side; each call waits at most a few seconds for the others (then Code::unavailable). A Ledger
// must not cross fork(2): the child opens its own. Not thread-safe: one per thread.
// Failures: corrupt (stop: the file is damaged, nothing may be undone on its word), unavailable
// (written by a newer release, or busy), resource_exhausted (disk full), io.
class Ledger {
public:
    // `dir_fd` is the state folder (0700); it is duplicated. Any path length works.
    [[nodiscard]] static Result<Ledger> open(int dir_fd, OpenMode mode);
    [[nodiscard]] static Result<Ledger> open(const HostPath& dir, OpenMode mode);

    Ledger(Ledger&&) noexcept;
    // Move-only; a moved-from Ledger may only be destroyed or assigned to.
    Ledger& operator=(Ledger&&) noexcept;
    ~Ledger();  // leaves the WAL as it is: call compact() when nobody waits any more

    // Takes the write lock, waiting for it. unavailable: a writer kept it for five seconds.
    [[nodiscard]] Result<Transaction> begin();

    // Before anything new begins: room on the disk by which what runs can still be ended. Needs no
    // transaction. resource_exhausted: there is none, nothing may begin.
    [[nodiscard]] Status keep_reserve();

    // Reads; each sees one committed state.
    [[nodiscard]] Result<std::optional<Sandbox>> find(const SandboxId& id);
    [[nodiscard]] Result<std::optional<Sandbox>> find_name(const SandboxName& name);  // live only
    // What a person typed: an exact live name, else the newest deleted of that name, else an
    // unambiguous id prefix. not_found, conflict (ambiguous).
    [[nodiscard]] Result<Sandbox> resolve(std::string_view reference);
    [[nodiscard]] Result<std::vector<Sandbox>> list(ListScope scope);  // oldest first
    [[nodiscard]] Result<std::vector<Entry>> entries(const SandboxId& id);  // by seq
    [[nodiscard]] Result<std::vector<Entry>> open_entries();  // of all, not undone, by seq
    [[nodiscard]] Result<std::optional<Claim>> claim_of(const SandboxId& id);
    [[nodiscard]] Result<std::vector<Claim>> claims();  // active ones
    // Of sandboxes that are not `deleted`, by id.
    [[nodiscard]] Result<std::vector<Managed>> managed();
    [[nodiscard]] Result<AuditHead> audit_head();
    [[nodiscard]] Result<std::vector<QueuedLine>> queued_audit();  // by seq
    // True when an effect was ever intended. A ledger without history proves nothing about what is
    // found on the host.
    [[nodiscard]] Result<bool> has_history();

    // Full check: SQLite's integrity_check (indexes too) and every row's checksum. Reads the whole
    // file: for `verify`, not for the way to a launch. corrupt: the first thing found wrong.
    [[nodiscard]] Status check();
    // Moves the WAL into the file and empties it: the next opener then need not read it. After
    // the reply, never before. Busy readers or writers are no failure: the next one will do it.
    [[nodiscard]] Status compact(CompactWhen when = CompactWhen::now);
    // Drops lines that are on the disk elsewhere, without a sync: after a power cut they may be
    // queued again.
    [[nodiscard]] Status forget_queued_audit(std::uint64_t up_to_seq);

private:
    explicit Ledger(std::unique_ptr<Connection> connection);
    std::unique_ptr<Connection> connection_;
};

}  // namespace sandbox::ledger
