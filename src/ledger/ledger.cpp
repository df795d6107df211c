// SPDX-License-Identifier: Apache-2.0
#include "ledger/ledger.hpp"

#include <sys/random.h>

#include <array>
#include <ctime>
#include <utility>

#include "canon/canon.hpp"
#include "ledger/codec.hpp"
#include "ledger/connection.hpp"
#include "ledger/reserve.hpp"

namespace sandbox::ledger {

namespace {

// A damaged row fails the whole list: a list that leaves rows out would make live things look
// foreign.
template <class T>
Result<std::vector<T>> decode_all(Result<std::vector<Row>> rows, Result<T> (*decode)(const Row&))
{
    if (!rows) return std::unexpected(std::move(rows).error());
    std::vector<T> values;
    values.reserve(rows->size());
    for (const auto& row : *rows) values.push_back(TRY(decode(row)));
    return values;
}

template <class T>
Result<std::optional<T>> decode_one(Result<std::optional<Row>> row, Result<T> (*decode)(const Row&))
{
    if (!row) return std::unexpected(std::move(row).error());
    if (!*row) return std::nullopt;
    return TRY(decode(**row));
}

// An id prefix shorter than this is more likely a mistyped name.
constexpr std::size_t kShortestPrefix = 4;

}  // namespace

Result<Moment> now()
{
    timespec wall{};
    timespec boot{};
    clock_gettime(CLOCK_REALTIME, &wall);
    // BOOTTIME goes on while the machine sleeps: a claim must not outlive its deadline in a
    // suspend.
    clock_gettime(CLOCK_BOOTTIME, &boot);
    std::tm parts{};
    gmtime_r(&wall.tv_sec, &parts);
    std::array<char, 32> date{};
    const std::size_t length = strftime(date.data(), date.size(), "%Y-%m-%dT%H:%M:%S", &parts);
    // From 1000 on, so that the text always has four digits; the first becomes the point.
    std::string millis = std::to_string(1000 + wall.tv_nsec / 1'000'000);
    millis[0] = '.';
    Moment moment;
    moment.utc = std::string(date.data(), length) + millis + "Z";
    moment.boottime_ns = static_cast<std::uint64_t>(boot.tv_sec) * 1'000'000'000U +
                         static_cast<std::uint64_t>(boot.tv_nsec);
    moment.boot_id = TRY(sys::boot_id());
    return moment;
}

Result<SandboxId> new_sandbox_id()
{
    // 128 random bits: an id is never given twice, not even across hosts and lost ledgers.
    std::array<std::uint8_t, 16> bytes{};
    // Up to 256 bytes are never cut short once the pool is ready (getrandom(2)).
    if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
        return fail_errno("getrandom");
    }
    return SandboxId(canon::hex(bytes));
}

Ledger::Ledger(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
Ledger::Ledger(Ledger&&) noexcept = default;
Ledger& Ledger::operator=(Ledger&&) noexcept = default;
Ledger::~Ledger() = default;

Result<Ledger> Ledger::open(int dir_fd, OpenMode mode)
{
    return Ledger(TRY(Connection::open(dir_fd, mode)));
}

Result<Ledger> Ledger::open(const HostPath& dir, OpenMode mode)
{
    const auto fd = TRY_WITH(sys::open_dir(dir.str()), "open the ledger");
    return open(fd.get(), mode);
}

Status Ledger::keep_reserve() { return ledger::keep_reserve(connection_->dir()); }

Result<Transaction> Ledger::begin()
{
    TRY_VOID(connection_->begin());
    return Transaction(*connection_);
}

Result<std::optional<Sandbox>> Ledger::find(const SandboxId& id)
{
    return decode_one(connection_->select_one(Table::sandbox, "WHERE id=?", {id.str()}),
                      sandbox_from);
}

Result<std::optional<Sandbox>> Ledger::find_name(const SandboxName& name)
{
    return decode_one(
        connection_->select_one(Table::sandbox, "WHERE name=? AND state<>'deleted'", {name.str()}),
        sandbox_from);
}

Result<Sandbox> Ledger::resolve(std::string_view reference)
{
    const std::string text(reference);
    // Live first: a name may be used again, and a person means what exists now.
    if (auto live = TRY(find_name(SandboxName(text)))) return *std::move(live);
    // rowid grows with each insert: the newest of those that had the name.
    const auto past = TRY(decode_one(
        connection_->select_one(Table::sandbox, "WHERE name=? ORDER BY rowid DESC LIMIT 1", {text}),
        sandbox_from));
    if (past) return *past;
    const bool hex = text.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!hex || text.size() < kShortestPrefix) {
        return fail(Code::not_found, "no sandbox is named \"" + text + "\": `ps` lists them");
    }
    // 'g' follows 'f': all ids that begin with the prefix.
    const auto matches = TRY(decode_all(
        connection_->select(Table::sandbox, "WHERE id>=? AND id<? LIMIT 2", {text, text + "g"}),
        sandbox_from));
    if (matches.empty()) {
        return fail(Code::not_found, "no sandbox has the name or id \"" + text + "\"");
    }
    if (matches.size() > 1) {
        return fail(Code::conflict, "id prefix \"" + text + "\" fits " + matches[0].id.str() +
                                        " and " + matches[1].id.str() + ": give more digits");
    }
    return matches.front();
}

Result<std::vector<Sandbox>> Ledger::list(ListScope scope)
{
    const auto* where = scope == ListScope::live ? "WHERE state<>'deleted' ORDER BY rowid"
                                                 : "ORDER BY rowid";
    return decode_all(connection_->select(Table::sandbox, where), sandbox_from);
}

Result<std::vector<Entry>> Ledger::entries(const SandboxId& id)
{
    return decode_all(connection_->select(Table::entry, "WHERE sandbox=? ORDER BY seq", {id.str()}),
                      entry_from);
}

Result<std::vector<Entry>> Ledger::open_entries()
{
    return decode_all(connection_->select(Table::entry, "WHERE state<>'undone' ORDER BY seq"),
                      entry_from);
}

Result<std::optional<Claim>> Ledger::claim_of(const SandboxId& id)
{
    return decode_one(
        connection_->select_one(Table::operation, "WHERE sandbox=? AND state='active'", {id.str()}),
        claim_from);
}

Result<std::vector<Claim>> Ledger::claims()
{
    return decode_all(connection_->select(Table::operation, "WHERE state='active' ORDER BY id"),
                      claim_from);
}

Result<std::vector<Managed>> Ledger::managed()
{
    return decode_all(connection_->select(Table::managed,
                                          "WHERE sandbox IN (SELECT id FROM sandbox "
                                          "WHERE state<>'deleted') ORDER BY sandbox"),
                      managed_from);
}

Result<AuditHead> Ledger::audit_head() { return read_audit_head(*connection_); }

Result<bool> Ledger::has_history() { return TRY(connection_->meta(kNextSeq)).has_value(); }

Status Ledger::check()
{
    // One read transaction: pages and rows of one state.
    TRY_VOID(connection_->run("BEGIN"));
    const auto all = [&]() -> Status {
        const auto verdict = TRY(connection_->run("PRAGMA integrity_check(1)"));
        if (verdict.empty() || verdict.front().front() != Value("ok")) {
            const auto* said = verdict.empty() ? nullptr
                                               : std::get_if<std::string>(&verdict.front().front());
            return fail(Code::corrupt,
                        "ledger: integrity_check says: " + (said != nullptr ? *said : "nothing") +
                            ": the file is damaged; stop here and restore it from a copy");
        }
        TRY_VOID(decode_all(connection_->select(Table::sandbox, ""), sandbox_from));
        TRY_VOID(decode_all(connection_->select(Table::entry, ""), entry_from));
        TRY_VOID(decode_all(connection_->select(Table::operation, ""), claim_from));
        TRY_VOID(connection_->select(Table::meta, ""));
        TRY_VOID(decode_all(connection_->select(Table::managed, ""), managed_from));
        TRY_VOID(queued_audit());
        return {};
    }();
    // Ends the read transaction; nothing was written.
    connection_->rollback();
    return all;
}

Status Ledger::compact(CompactWhen when) { return connection_->checkpoint(when); }

}  // namespace sandbox::ledger
