// SPDX-License-Identifier: Apache-2.0
#include "ledger/connection.hpp"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "ledger/schema.hpp"
#include "ledger/vfs.hpp"
#include "sys/file.hpp"

namespace sandbox::ledger {

namespace {

// How long one call waits for other processes. A writer holds the lock for about a millisecond;
// a hundred of them side by side need a tenth of a second. A disk that many guests write to has been
// seen to take seconds for a sync; beyond this a writer is stuck.
constexpr std::int64_t kBusyLimit = 10'000'000'000;  // ns
// SQLite's own handler backs off to 100 ms, which starves late comers; these naps stay short.
constexpr std::int64_t kFirstNap = 100'000;  // ns
constexpr std::int64_t kLongestNap = 5'000'000;  // ns
// SQLite takes a shorter file for an empty one and would fill it in silence (file format, 1.3.2:
// the smallest page has 512 bytes). A file of nothing is one that another process is making.
constexpr off_t kSmallestFile = 512;
// SQLite's own default: from so many frames on, a commit also moves the WAL into the file.
constexpr int kCheckpointFrames = 1000;
// Below that many frames an opener reads the WAL in a fraction of a millisecond, less than one of
// the two syncs that emptying it takes. They fit into the kept length (vfs.hpp), with room for a
// run.
constexpr int kFewFrames = 64;

std::int64_t monotonic_ns()
{
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// Per thread: the handler gets only a counter, and each thread has a connection of its own.
thread_local std::int64_t busy_since = 0;

int nap_while_busy(void*, int tries)
{
    const std::int64_t now = monotonic_ns();
    if (tries == 0) busy_since = now;
    if (now - busy_since > kBusyLimit) return 0;
    const std::int64_t nap = std::min(kLongestNap, kFirstNap << std::min(tries, 10));
    // Spread by the clock's low digits, so that waiters do not wake in step.
    const timespec pause{0, nap / 2 + now % (nap / 2 + 1)};
    nanosleep(&pause, nullptr);
    return 1;
}

Result<WhenMissing> check_file(int dir_fd, OpenMode mode)
{
    // By name and without following a link: the folder is ours alone (0700), so nothing in it can
    // be exchanged between this look and SQLite's open. Anything odd is refused, never mended.
    const std::string name(kFileName);
    struct stat info{};
    if (fstatat(dir_fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT && mode == OpenMode::create) return WhenMissing::create;
        return fail_errno("fstatat", name);
    }
    if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 0022) != 0) {
        return fail(Code::permission_denied,
                    "ledger.db: wanted a regular file that only its owner (uid " +
                        std::to_string(geteuid()) + ") can write, found mode " +
                        std::to_string(info.st_mode & 07777) + " (decimal), owner " +
                        std::to_string(info.st_uid) +
                        ": find out who made it, then remove or mend it");
    }
    if (info.st_size > 0 && info.st_size < kSmallestFile) {
        return fail(Code::corrupt,
                    "ledger.db: " + std::to_string(info.st_size) +
                        " bytes are no database; stop here and restore it from a copy");
    }
    return WhenMissing::fail;
}

Code code_of(int primary)
{
    switch (primary) {
    // SQLite's extended codes fold onto the closed set; the low byte is the primary code
    // (sqlite.org/rescode.html).
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return Code::unavailable;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return Code::corrupt;
    case SQLITE_FULL:
    case SQLITE_NOMEM:
    case SQLITE_TOOBIG: return Code::resource_exhausted;
    case SQLITE_READONLY:
    case SQLITE_PERM: return Code::permission_denied;
    case SQLITE_CONSTRAINT: return Code::already_exists;
    case SQLITE_MISUSE:
    case SQLITE_ERROR: return Code::internal;
    default: return Code::io;
    }
}

std::string_view advice(int primary)
{
    switch (primary) {
    case SQLITE_BUSY: return ": another process holds it; try again, or look who has it open";
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: return ": the file is damaged; stop here and restore it from a copy";
    case SQLITE_FULL: return ": the disk is full; stop and rm still need a few KiB, free some";
    default: return "";
    }
}

// After a failed fsync the kernel may mark dirty pages clean (fsync(2), EIO): a retry that succeeds
// proves nothing. Only reading the file anew tells what is there.
bool is_sync_failure(int extended)
{
    return extended == SQLITE_IOERR_FSYNC || extended == SQLITE_IOERR_DIR_FSYNC;
}

int bind(sqlite3_stmt* statement, int index, const Value& value)
{
    if (const auto* integer = std::get_if<std::int64_t>(&value)) {
        return sqlite3_bind_int64(statement, index, *integer);
    }
    const auto& text = std::get<std::string>(value);
    // Before the cast below: a length above INT_MAX would turn negative, which means "up to the
    // NUL".
    if (text.size() > kMaxText) return SQLITE_TOOBIG;
    // The row outlives the step: no copy.
    return sqlite3_bind_text(statement, index, text.data(), static_cast<int>(text.size()),
                             SQLITE_STATIC);
}

Row read_row(sqlite3_stmt* statement)
{
    Row row;
    const int columns = sqlite3_column_count(statement);
    row.reserve(static_cast<std::size_t>(columns));
    for (int i = 0; i < columns; ++i) {
        if (sqlite3_column_type(statement, i) == SQLITE_INTEGER) {
            row.emplace_back(std::int64_t{sqlite3_column_int64(statement, i)});
            continue;
        }
        // Anything else is read as a blob: bytes and length are then exact.
        const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement, i));
        const int size = sqlite3_column_bytes(statement, i);
        row.emplace_back(bytes == nullptr ? std::string{}
                                          : std::string(bytes, static_cast<std::size_t>(size)));
    }
    return row;
}

}  // namespace

Result<std::unique_ptr<Connection>> Connection::open(int dir_fd, OpenMode mode)
{
    const WhenMissing when_missing = TRY_WITH(check_file(dir_fd, mode), "open the ledger");
    const char* vfs = registered_vfs();
    if (vfs == nullptr) return fail(Code::internal, "ledger: SQLite has no unix VFS");
    std::unique_ptr<Connection> connection(new Connection);
    // A descriptor of our own, above stdio: the caller may close its one, and SQLite resolves the
    // path below again for each file it opens (WAL, shared memory).
    connection->dir_ = TRY(sys::duplicate(dir_fd, 3));
    const std::string path = sys::fd_path(connection->dir_.get()) + "/" + std::string(kFileName);
    // NOMUTEX: a Ledger belongs to one thread. EXRESCODE: a failed sync must be
    // told from other I/O.
    const int flags = (mode == OpenMode::read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE) |
                      (when_missing == WhenMissing::create ? SQLITE_OPEN_CREATE : 0) |
                      SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
    const int code = sqlite3_open_v2(path.c_str(), &connection->db_, flags, vfs);
    if (code != SQLITE_OK) return connection->failure(code, "open");
    TRY_VOID(connection->configure(mode, when_missing));
    return connection;
}

Status Connection::configure(OpenMode mode, WhenMissing when_missing)
{
    sqlite3_busy_handler(db_, nap_while_busy, nullptr);
    // Closing must be quick and must not checkpoint under a waiting client: compact() does.
    sqlite3_db_config(db_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    // DEFENSIVE and an untrusted schema: a forged file may define triggers and views; they must
    // neither reach SQLite's internals nor call functions with effects (sqlite.org/security.html).
    sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(db_, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    sqlite3_wal_hook(db_, after_commit, this);
    // The room for one row: three or four texts of the largest size.
    sqlite3_limit(db_, SQLITE_LIMIT_LENGTH, static_cast<int>(4 * kMaxText));
    if (when_missing == WhenMissing::create) {
        // By name, not by a descriptor of ours: closing one would drop this process's POSIX locks.
        const std::string name(kFileName);
        if (fchmodat(dir_.get(), name.c_str(), 0600, 0) != 0) return fail_errno("fchmodat", name);
    }
    // FULL in WAL mode: each commit syncs the WAL, which is what "intent before effect" rests on.
    // NORMAL would let a power cut undo commits whose effects have happened.
    TRY_VOID(run("PRAGMA synchronous=FULL"));
    return migrate(mode);
}

Status Connection::migrate(OpenMode mode)
{
    const auto version = [this]() -> Result<std::int64_t> {
        const auto rows = TRY(run("PRAGMA user_version"));
        return std::get<std::int64_t>(rows.at(0).at(0));
    };
    // user_version is in the file's header: reading it needs no table, so any release can tell.
    const std::int64_t found = TRY(version());
    if (found == kSchemaVersion) return {};
    if (found > kSchemaVersion) {
        return fail(Code::unavailable, "the ledger was written by a newer release (schema " +
                                           std::to_string(found) + ", this one knows " +
                                           std::to_string(kSchemaVersion) +
                                           "): use that release, nothing was read or changed");
    }
    if (found == 0 && mode == OpenMode::read_only) {
        // Another process is making it: so far it has its first page and no table. Anything more
        // has lost its number, and must not pass for a host without sandboxes.
        const auto pages = TRY(run("PRAGMA page_count"));
        const auto tables = TRY(run("SELECT count(*) FROM sqlite_schema"));
        if (std::get<std::int64_t>(pages.at(0).at(0)) <= 1 &&
            std::get<std::int64_t>(tables.at(0).at(0)) == 0) {
            return fail(Code::not_found, "the ledger is just being made");
        }
        return fail(Code::corrupt, "the ledger has no schema number and is not empty: it is "
                                   "damaged, nothing was changed");
    }
    if (mode == OpenMode::read_only) {
        return fail(Code::unavailable, "the ledger has schema " + std::to_string(found) +
                                           " and is open for reading only: run a verb that writes "
                                           "(sandboxctl reconcile) to bring it up to date");
    }
    // The switch may answer busy at once while another process creates the same file.
    const std::int64_t give_up = monotonic_ns() + kBusyLimit;
    for (;;) {
        auto switched = run("PRAGMA journal_mode=WAL");
        if (switched) {
            if (switched->at(0).at(0) == Value("wal")) break;
            return fail(Code::unavailable, "the ledger's file system cannot do WAL (shared memory "
                                           "maps): put the state folder on a local file system");
        }
        if (switched.error().code() != Code::unavailable || monotonic_ns() > give_up) {
            return std::unexpected(std::move(switched).error());
        }
        nap_while_busy(nullptr, 1);
    }
    TRY_VOID(begin());
    const std::int64_t current = TRY(version());  // somebody may have been quicker
    for (const auto sql : migrations_from(static_cast<int>(current))) {
        const auto step = run(sql);
        if (step) continue;
        const Code why = step.error().code();
        if (why != Code::internal && why != Code::corrupt) return fail(step.error());
        // They work on every ledger that is what its number says.
        return fail(Code::corrupt, "the ledger says that it has schema " + std::to_string(current) +
                                       " and holds something else (" + step.error().message() +
                                       "): it is damaged, nothing was changed");
    }
    TRY_VOID(commit());
    // The names of the new files last too; SQLite syncs the folder for its journal files only.
    return sys::fsync_fd(dir_.get());
}

Connection::~Connection()
{
    // Statements before the connection: sqlite3_close refuses while one is alive.
    if (db_ != nullptr && in_transaction()) rollback();
    for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
    if (db_ != nullptr) sqlite3_close(db_);
}

std::unexpected<Error> Connection::failure(int code, std::string_view doing)
{
    const int primary = code & 0xff;
    if (is_sync_failure(code)) distrusted_ = true;
    std::string message = "ledger: " + std::string(doing) + ": " + sqlite3_errstr(code);
    if (db_ != nullptr && primary == SQLITE_ERROR)
        message += std::string(" (") + sqlite3_errmsg(db_) + ")";
    message += advice(primary);
    return fail(code_of(primary), std::move(message));
}

// A failed prepare is kept nowhere: after a migration the same text may compile.
Result<sqlite3_stmt*> Connection::prepare(std::string_view sql)
{
    if (const auto found = statements_.find(sql); found != statements_.end()) return found->second;
    sqlite3_stmt* statement = nullptr;
    const int code = sqlite3_prepare_v3(db_, sql.data(), static_cast<int>(sql.size()),
                                        SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    // Our statements fit every ledger that is what its number says.
    if ((code & 0xff) == SQLITE_ERROR)
        return fail(Code::corrupt, std::string("the ledger is not what its schema number says (") +
                                       sqlite3_errmsg(db_) +
                                       "): it is damaged; stop here and restore it from a copy");
    if (code != SQLITE_OK) return failure(code, "prepare");
    statements_.emplace(sql, statement);
    return statement;
}

Result<std::vector<Row>> Connection::run(std::string_view sql, const Row& arguments)
{
    // Every later answer could rest on pages the disk does not hold: refuse until somebody opens
    // again and reads from the disk.
    if (distrusted_) {
        return fail(Code::io,
                    "ledger: an earlier sync failed, so what the disk holds is not known: "
                    "open it again");
    }
    sqlite3_stmt* statement = TRY(prepare(sql));
    int code = SQLITE_OK;
    for (std::size_t i = 0; i < arguments.size() && code == SQLITE_OK; ++i) {
        code = bind(statement, static_cast<int>(i) + 1, arguments[i]);
    }
    std::vector<Row> rows;
    if (code == SQLITE_OK) {
        while ((code = sqlite3_step(statement)) == SQLITE_ROW) rows.push_back(read_row(statement));
    }
    if (code != SQLITE_DONE) {
        // Reset even after a failure: a statement that is not reset keeps its lock on the file.
        auto error = failure(code, sql.substr(0, sql.find(' ')));
        sqlite3_reset(statement);
        return error;
    }
    sqlite3_reset(statement);
    return rows;
}

Result<std::vector<Row>> Connection::select(Table table, std::string_view where,
                                            const Row& arguments)
{
    // The text is put together from our own names and literals; values are always bound, never
    // pasted.
    // Each column by its name: one that a damaged schema calls otherwise is missed.
    std::string text = "SELECT ";
    for (const std::string_view column : columns_of(table)) text += std::string(column) + ",";
    text += "sum FROM " + std::string(name_of(table)) + " " + std::string(where);
    auto rows = TRY(run(text, arguments));
    for (auto& row : rows) row = TRY(checked(table, std::move(row)));
    return rows;
}

Result<std::optional<Row>> Connection::select_one(Table table, std::string_view where,
                                                  const Row& arguments)
{
    auto rows = TRY(select(table, where, arguments));
    if (rows.empty()) return std::nullopt;
    return std::move(rows.front());
}

Status Connection::insert(Table table, Row values)
{
    std::string sql = "INSERT INTO " + std::string(name_of(table)) + " VALUES(?";
    for (std::size_t i = 0; i < values.size(); ++i) sql += ",?";
    values.emplace_back(row_sum(table, values));
    TRY_VOID(run(sql + ")", values));
    return {};
}

Status Connection::update(Table table, Row values)
{
    std::string sql = "UPDATE " + std::string(name_of(table)) + " SET ";
    const auto columns = columns_of(table);
    for (const auto column : columns) sql += std::string(column) + "=?,";
    sql += "sum=? WHERE " + std::string(columns.front()) + "=?";
    const Value key = values.front();
    values.emplace_back(row_sum(table, values));
    values.push_back(key);
    TRY_VOID(run(sql, values));
    // A silent update of nothing would lose an intent.
    if (changes() != 1)
        return fail(Code::not_found, "ledger: no such row in " + std::string(name_of(table)));
    return {};
}

Result<std::optional<std::string>> Connection::meta(std::string_view key)
{
    const auto row = TRY(select_one(Table::meta, "WHERE key=?", {std::string(key)}));
    if (!row) return std::nullopt;
    return std::get<std::string>(row->at(1));
}

Status Connection::set_meta(std::string_view key, std::string_view value)
{
    Row row{std::string(key), std::string(value)};
    auto updated = update(Table::meta, row);
    if (updated || updated.error().code() != Code::not_found) return updated;
    return insert(Table::meta, std::move(row));
}

int Connection::changes() const { return sqlite3_changes(db_); }

Status Connection::begin()
{
    // IMMEDIATE takes the write lock at once. A deferred transaction that reads and then writes may
    // fail half-way with SQLITE_BUSY, which no waiting can cure (its snapshot is stale).
    TRY_VOID(run("BEGIN IMMEDIATE"));
    return {};
}

Status Connection::commit()
{
    TRY_VOID(run("COMMIT"));
    return {};
}

void Connection::rollback() noexcept
{
    if (in_transaction()) sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
}

bool Connection::in_transaction() const noexcept { return sqlite3_get_autocommit(db_) == 0; }

int Connection::after_commit(void* self, sqlite3* db, const char*, int frames)
{
    static_cast<Connection*>(self)->frames_ = frames;
    // As SQLite's own hook does, which this one replaces: a failure here is seen by the next one.
    if (frames >= kCheckpointFrames) {
        sqlite3_wal_checkpoint_v2(db, nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
    }
    return SQLITE_OK;
}

Status Connection::commit_lazily(std::string_view sql, const Row& arguments)
{
    // Not through run(): this pragma acts when it is compiled, a kept statement would do nothing.
    const auto set = [this](const char* pragma) {
        return sqlite3_exec(db_, pragma, nullptr, nullptr, nullptr);
    };
    if (const int code = set("PRAGMA synchronous=NORMAL"); code != SQLITE_OK) {
        return failure(code, "PRAGMA");
    }
    const auto done = run(sql, arguments);
    // A connection stuck on NORMAL would break the promise of every later commit(): better useless.
    if (const int code = set("PRAGMA synchronous=FULL"); code != SQLITE_OK) {
        distrusted_ = true;
        return failure(code, "PRAGMA");
    }
    if (!done) return fail(done.error());
    return {};
}

Status Connection::checkpoint(CompactWhen when)
{
    if (when == CompactWhen::large && frames_ && *frames_ < kFewFrames) return {};
    // Never wait here: readers and writers come first, and the next call will find the WAL again.
    sqlite3_busy_handler(db_, nullptr, nullptr);
    const int code = sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr,
                                               nullptr);
    sqlite3_busy_handler(db_, nap_while_busy, nullptr);
    // The handler goes back in whatever the outcome: the
    // next begin() has to wait as ever.
    if (code == SQLITE_OK) frames_ = 0;
    // Busy is success: the WAL is still valid, only longer.
    if (code == SQLITE_OK || (code & 0xff) == SQLITE_BUSY) return {};
    return failure(code, "checkpoint");
}

}  // namespace sandbox::ledger
