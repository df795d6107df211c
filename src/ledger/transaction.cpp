// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <set>

#include "ledger/codec.hpp"
#include "ledger/connection.hpp"
#include "ledger/ledger.hpp"

namespace sandbox::ledger {

namespace {

// Past operations kept for clients that repeat one. A choice of ours: far more than clients retry
// at once.
constexpr std::int64_t kKeepOperations = 4096;

Result<std::uint64_t> decimal(std::string_view text)
{
    std::uint64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code == std::errc{} && end == text.data() + text.size()) return value;
    return fail(Code::corrupt, "ledger: wanted a number, found \"" + std::string(text) + "\"");
}

std::unexpected<Error> no_sandbox(const SandboxId& id)
{
    return fail(Code::not_found, "ledger: no sandbox has the id " + id.str());
}

}  // namespace

Result<AuditHead> read_audit_head(Connection& connection)
{
    const auto seq = TRY(connection.meta(kAuditSeq));
    const auto digest = TRY(connection.meta(kAuditDigest));
    // No line was ever appended.
    if (!seq || !digest) return AuditHead{};
    return AuditHead{TRY(decimal(*seq)), *digest};
}

Transaction::Transaction(Connection& connection) : connection_(&connection) {}

Transaction::Transaction(Transaction&& other) noexcept
    : connection_(std::exchange(other.connection_, nullptr))
{
}

Transaction::~Transaction()
{
    if (connection_ != nullptr) connection_->rollback();
}

Status Transaction::commit()
{
    auto committed = connection_->commit();
    // SQLite leaves the transaction open after a failed COMMIT; the caller was told "nothing
    // stored".
    if (!committed) connection_->rollback();
    return committed;
}

Status Transaction::insert(const Sandbox& sandbox)
{
    if (!is_sandbox_id(sandbox.id.str()) || sandbox.name.empty()) {
        return fail(Code::invalid_argument,
                    "ledger: wanted an id of 32 hex digits and a name, found \"" +
                        sandbox.id.str() + "\", \"" + sandbox.name.str() + "\"");
    }
    // The unique index decides, not a look first: two processes may insert the same name at once.
    auto inserted = connection_->insert(Table::sandbox, to_row(sandbox));
    if (!inserted && inserted.error().code() == Code::already_exists) {
        return fail(Code::already_exists, "a sandbox named \"" + sandbox.name.str() +
                                              "\" exists: choose another name, or remove it first "
                                              "(sandboxctl rm " +
                                              sandbox.name.str() + ")");
    }
    return inserted;
}

Result<Sandbox> Transaction::get(const SandboxId& id)
{
    const auto row = TRY(connection_->select_one(Table::sandbox, "WHERE id=?", {id.str()}));
    if (!row) return no_sandbox(id);
    return sandbox_from(*row);
}

Status Transaction::store(const Sandbox& sandbox)
{
    return connection_->update(Table::sandbox, to_row(sandbox));
}

Status Transaction::update(const Sandbox& sandbox)
{
    // Read inside the write lock: the caller's copy may be older than what others committed since.
    const Sandbox stored = TRY(get(sandbox.id));
    Sandbox next = sandbox;
    next.state = stored.state;
    next.generation = stored.generation;
    next.exit = stored.exit;
    next.exit_delivered = stored.exit_delivered;
    next.ids = stored.ids;
    return store(next);
}

Status Transaction::set_state(const SandboxId& id, State to)
{
    Sandbox sandbox = TRY(get(id));
    if (!may_become(sandbox.state, to)) {
        return fail(Code::conflict, "sandbox " + id.str() + " is " +
                                        std::string(to_string(sandbox.state)) +
                                        " and cannot become " + std::string(to_string(to)));
    }
    // Logs outlive their sandbox. Anything else it still owns would be forgotten with it.
    if (to == State::deleted) {
        const auto open = TRY(connection_->select(
            Table::entry, "WHERE sandbox=? AND state<>'undone' AND kind<>'log_files' LIMIT 1",
            {id.str()}));
        if (!open.empty()) {
            const Entry left = TRY(entry_from(open.front()));
            return fail(Code::conflict, "sandbox " + id.str() + " still owns " +
                                            std::string(to_string(left.kind)) + " " + left.name);
        }
    }
    sandbox.state = to;
    return store(sandbox);
}

Status Transaction::set_desired(const SandboxId& id, Desired desired)
{
    Sandbox sandbox = TRY(get(id));
    sandbox.desired = desired;
    return store(sandbox);
}

Status Transaction::set_managed(const Managed& managed)
{
    TRY(get(managed.sandbox));
    auto updated = connection_->update(Table::managed, to_row(managed));
    if (updated || updated.error().code() != Code::not_found) return updated;
    return connection_->insert(Table::managed, to_row(managed));
}

Status Transaction::set_shim(const SandboxId& id, const ProcessIdentity& shim)
{
    Sandbox sandbox = TRY(get(id));
    sandbox.shim = shim;
    return store(sandbox);
}

Status Transaction::set_pid1(const SandboxId& id, const ProcessIdentity& pid1)
{
    Sandbox sandbox = TRY(get(id));
    sandbox.pid1 = pid1;
    return store(sandbox);
}

Result<std::uint32_t> Transaction::begin_generation(const SandboxId& id)
{
    Sandbox sandbox = TRY(get(id));
    // All four belonged to the run before: a reader must not take an old exit for the new one's.
    ++sandbox.generation;
    sandbox.exit.reset();
    sandbox.exit_delivered = false;
    sandbox.shim.reset();
    sandbox.pid1.reset();
    TRY_VOID(store(sandbox));
    return sandbox.generation;
}

Result<std::uint64_t> Transaction::intend(const SandboxId& id, std::span<const Intent> intents)
{
    const Sandbox sandbox = TRY(get(id));
    if (sandbox.state == State::deleted) {
        return fail(Code::conflict,
                    "sandbox " + id.str() + " is deleted: nothing may start for it");
    }
    // Never reused, not even after rows are pruned: order of undo and of evidence rests on it.
    const auto stored = TRY(connection_->meta(kNextSeq));
    const std::uint64_t first = stored ? TRY(decimal(*stored)) : 1;
    std::uint64_t seq = first;
    for (const auto& intent : intents) {
        const Entry entry{
            id, seq++, sandbox.generation, intent.kind, intent.name, EntryState::intent, {}};
        TRY_VOID(connection_->insert(Table::entry, to_row(entry)));
    }
    TRY_VOID(connection_->set_meta(kNextSeq, std::to_string(seq)));
    return first;
}

Result<Entry> Transaction::entry(std::uint64_t seq)
{
    const auto row = TRY(
        connection_->select_one(Table::entry, "WHERE seq=?", {static_cast<std::int64_t>(seq)}));
    if (!row) return fail(Code::not_found, "ledger: no entry " + std::to_string(seq));
    return entry_from(*row);
}

Status Transaction::observed(std::uint64_t seq, std::string_view identity)
{
    Entry found = TRY(entry(seq));
    // Whoever unwound it proved it absent. The late effect of a holder that lost its claim must
    // show as a conflict, or nobody would ever undo it.
    if (found.state == EntryState::undone) {
        return fail(Code::conflict, "ledger: entry " + std::to_string(seq) + " (" + found.name +
                                        ") is undone: somebody unwound this sandbox; stop");
    }
    found.state = EntryState::observed;
    found.identity = identity;
    return connection_->update(Table::entry, to_row(found));
}

Status Transaction::undone(std::uint64_t seq)
{
    Entry found = TRY(entry(seq));
    if (found.state == EntryState::undone) return {};
    found.state = EntryState::undone;
    TRY_VOID(connection_->update(Table::entry, to_row(found)));
    // The range is free from here on, so the sandbox must not name it any more.
    if (found.kind != EntryKind::id_range) return {};
    Sandbox sandbox = TRY(get(found.sandbox));
    sandbox.ids.reset();
    return store(sandbox);
}

Result<IdRange> Transaction::allocate_ids(const SandboxId& id, IdPool pool)
{
    Sandbox sandbox = TRY(get(id));
    if (sandbox.ids) return *sandbox.ids;
    // From entries, not from sandbox rows: a range stays taken until its undo is recorded.
    std::set<std::uint32_t> taken;
    for (const auto& row :
         TRY(connection_->select(Table::entry, "WHERE kind='id_range' AND state<>'undone'"))) {
        const Entry holder = TRY(entry_from(row));
        taken.insert(TRY(decode_range(holder.identity)).first);
    }
    for (std::uint32_t i = 0; i < pool.ranges; ++i) {
        const std::uint64_t first = pool.first + std::uint64_t{i} * kIdsPerRange;
        // A pool that was moved in the configuration may overlap old ranges half-way.
        const auto overlaps = [&](std::uint32_t other) {
            return first < std::uint64_t{other} + kIdsPerRange && other < first + kIdsPerRange;
        };
        if (first + kIdsPerRange > UINT32_MAX) break;
        const auto near = taken.upper_bound(
            static_cast<std::uint32_t>(first - std::min<std::uint64_t>(first, kIdsPerRange)));
        if ((near != taken.end() && overlaps(*near)) ||
            taken.contains(static_cast<std::uint32_t>(first))) {
            continue;
        }
        const IdRange range{static_cast<std::uint32_t>(first), kIdsPerRange};
        const Intent intent{EntryKind::id_range,
                            std::to_string(range.first) + "+" + std::to_string(range.count)};
        const std::uint64_t seq = TRY(intend(id, {&intent, 1}));
        TRY_VOID(observed(seq, encode(range)));
        sandbox.ids = range;
        TRY_VOID(store(sandbox));
        return range;
    }
    return fail(Code::resource_exhausted,
                "all " + std::to_string(pool.ranges) + " id ranges from " +
                    std::to_string(pool.first) +
                    " on are in use: remove sandboxes, or widen the range in config.toml");
}

Status Transaction::record_exit(const SandboxId& id, std::uint32_t generation, const Exit& exit)
{
    Sandbox sandbox = TRY(get(id));
    // The first verdict stands: shim and reconcile may both try to record how a generation ended.
    if (sandbox.generation != generation || sandbox.exit) {
        return fail(Code::conflict,
                    "sandbox " + id.str() + " generation " + std::to_string(generation) +
                        (sandbox.exit ? " has its exit status already"
                                      : " is not the present one (" +
                                            std::to_string(sandbox.generation) + ")"));
    }
    sandbox.exit = exit;
    return store(sandbox);
}

Result<std::optional<Exit>> Transaction::take_exit(const SandboxId& id)
{
    Sandbox sandbox = TRY(get(id));
    // Marked within the same transaction: of two clients that ask, exactly one is given it.
    if (!sandbox.exit || sandbox.exit_delivered) return std::nullopt;
    sandbox.exit_delivered = true;
    TRY_VOID(store(sandbox));
    return sandbox.exit;
}

Status Transaction::advance_audit(const AuditHead& expected, const AuditHead& next)
{
    // Compared under the write lock: two writers would else chain two lines to one digest.
    const AuditHead stored = TRY(read_audit_head(*connection_));
    if (stored != expected) {
        return fail(Code::conflict,
                    "audit: the ledger's head is line " + std::to_string(stored.seq) + ", wanted " +
                        std::to_string(expected.seq) + ": read the log's end again");
    }
    TRY_VOID(connection_->set_meta(kAuditSeq, std::to_string(next.seq)));
    return connection_->set_meta(kAuditDigest, next.digest);
}

Result<std::vector<Sandbox>> Transaction::prune(std::uint32_t keep)
{
    // LIMIT -1 means no limit; SQLite wants one before OFFSET.
    std::vector<Sandbox> gone;
    for (const auto& row : TRY(connection_->select(
             Table::sandbox, "WHERE state='deleted' ORDER BY rowid DESC LIMIT -1 OFFSET ?",
             {static_cast<std::int64_t>(keep)}))) {
        gone.push_back(TRY(sandbox_from(row)));
        const Row id{gone.back().id.str()};
        TRY_VOID(connection_->run("DELETE FROM entry WHERE sandbox=?", id));
        // An active claim survives its sandbox's row: its holder still has to finish it.
        TRY_VOID(connection_->run("DELETE FROM operation WHERE sandbox=? AND state<>'active'", id));
        TRY_VOID(connection_->run("DELETE FROM managed WHERE sandbox=?", id));
        TRY_VOID(connection_->run("DELETE FROM sandbox WHERE id=?", id));
    }
    TRY_VOID(connection_->run(
        "DELETE FROM operation WHERE state<>'active' AND rowid<=(SELECT max(rowid) FROM operation)-?",
        {kKeepOperations}));
    return gone;
}

}  // namespace sandbox::ledger
