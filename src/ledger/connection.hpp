// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "ledger/codec.hpp"
#include "ledger/ledger.hpp"
#include "sys/fd.hpp"

struct sqlite3;
struct sqlite3_stmt;

// Private to this folder: the only place that speaks to SQLite.
namespace sandbox::ledger {

// Keys of table meta.
inline constexpr std::string_view kAuditSeq = "audit_seq";
inline constexpr std::string_view kAuditDigest = "audit_digest";
inline constexpr std::string_view kNextSeq = "next_seq";

enum class WhenMissing { fail, create };

// One SQLite connection. One thread; does not cross fork(2), where SQLite's POSIX locks would be
// shared and lost. Calls may block on the disk, and on other writers up to five seconds (then
// Code::unavailable).
class Connection {
public:
    // Duplicates `dir_fd`. Codes: not_found (no file, and `mode` is not create), permission_denied
    // (a file that others can write, or no regular file), corrupt, unavailable (busy or a newer
    // schema).
    [[nodiscard]] static Result<std::unique_ptr<Connection>> open(int dir_fd, OpenMode mode);
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    ~Connection();

    // Runs one statement; rows are given back whole. Statements are kept prepared by a copy of
    // their text, so the set of texts must be small and fixed: no values in them.
    [[nodiscard]] Result<std::vector<Row>> run(std::string_view sql, const Row& arguments = {});
    // A full-row query ("SELECT * FROM table …"): each row's checksum is verified.
    [[nodiscard]] Result<std::vector<Row>> select(Table table, std::string_view where,
                                                  const Row& arguments = {});
    [[nodiscard]] Result<std::optional<Row>> select_one(Table table, std::string_view where,
                                                        const Row& arguments = {});
    // `values` in column order, the first being the key; the checksum is added.
    // already_exists: the key, or a unique index, is taken.
    [[nodiscard]] Status insert(Table table, Row values);
    // not_found: no row has this key.
    [[nodiscard]] Status update(Table table, Row values);

    [[nodiscard]] Result<std::optional<std::string>> meta(std::string_view key);
    [[nodiscard]] Status set_meta(std::string_view key, std::string_view value);

    // Rows the last statement changed.
    int changes() const;
    // A write transaction: waits for the lock here, never at commit().
    [[nodiscard]] Status begin();
    // Durable when it returns success. On failure the transaction is still open: roll it back.
    [[nodiscard]] Status commit();
    void rollback() noexcept;
    // One statement as a transaction of its own that a power cut may undo, until the next commit,
    // whoever's, makes it last too. Not inside a transaction.
    [[nodiscard]] Status commit_lazily(std::string_view sql, const Row& arguments);
    // Empties the WAL, or does nothing when that is not worth it (`when`) or somebody is reading.
    [[nodiscard]] Status checkpoint(CompactWhen when);
    bool in_transaction() const noexcept;
    int dir() const noexcept { return dir_.get(); }

private:
    Connection() = default;
    [[nodiscard]] Status configure(OpenMode mode, WhenMissing when_missing);
    [[nodiscard]] Status migrate(OpenMode mode);
    [[nodiscard]] Result<sqlite3_stmt*> prepare(std::string_view sql);
    static int after_commit(void* self, sqlite3* db, const char* schema, int frames);
    std::unexpected<Error> failure(int code, std::string_view doing);

    sqlite3* db_ = nullptr;
    sys::UniqueFd dir_;
    std::optional<int> frames_;  // in the WAL after the last commit of this connection
    bool distrusted_ = false;  // a sync failed: what is on the disk is unknown
    std::map<std::string, sqlite3_stmt*, std::less<>> statements_;
};

[[nodiscard]] Result<AuditHead> read_audit_head(Connection& connection);

}  // namespace sandbox::ledger
