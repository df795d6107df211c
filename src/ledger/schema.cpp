// SPDX-License-Identifier: Apache-2.0
#include "ledger/schema.hpp"

#include <array>

#include "ledger/ledger.hpp"

namespace sandbox::ledger {

namespace {

// 0 → 1, then 1 → 2. Columns: docs/formats/ledger.md.
constexpr std::array<std::string_view, 12> kStatements{
    "CREATE TABLE sandbox(id TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL, profile TEXT NOT NULL,"
    " driver TEXT NOT NULL, isolation_class TEXT NOT NULL, plan_digest TEXT NOT NULL,"
    " plan_path TEXT NOT NULL, log_path TEXT NOT NULL, desired TEXT NOT NULL, state TEXT NOT NULL,"
    " generation INTEGER NOT NULL, created_utc TEXT NOT NULL, created_ns INTEGER NOT NULL,"
    " created_boot TEXT NOT NULL, shim TEXT NOT NULL, pid1 TEXT NOT NULL, id_range TEXT NOT NULL,"
    " remove_on_exit INTEGER NOT NULL, labels TEXT NOT NULL, exit TEXT NOT NULL,"
    " exit_delivered INTEGER NOT NULL, request_digest TEXT NOT NULL, sum TEXT NOT NULL) STRICT",
    // What makes two live sandboxes of one name impossible, also for two processes at once.
    "CREATE UNIQUE INDEX sandbox_live_name ON sandbox(name) WHERE state<>'deleted'",
    "CREATE TABLE entry(seq INTEGER PRIMARY KEY NOT NULL, sandbox TEXT NOT NULL,"
    " generation INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL,"
    " identity TEXT NOT NULL, sum TEXT NOT NULL) STRICT",
    "CREATE INDEX entry_sandbox ON entry(sandbox)",
    "CREATE INDEX entry_open ON entry(kind) WHERE state<>'undone'",
    "CREATE TABLE operation(id TEXT PRIMARY KEY NOT NULL, sandbox TEXT NOT NULL, verb TEXT NOT NULL,"
    " request_digest TEXT NOT NULL, holder TEXT NOT NULL, step TEXT NOT NULL,"
    " deadline_ns INTEGER NOT NULL, state TEXT NOT NULL, result TEXT NOT NULL, sum TEXT NOT NULL)"
    " STRICT",
    // One active claim for each sandbox, held by the file and not by the care of its writers.
    "CREATE UNIQUE INDEX operation_claim ON operation(sandbox) WHERE state='active'",
    "CREATE TABLE meta(key TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL, sum TEXT NOT NULL) STRICT",
    // Lines are chained by their digests already: no sum.
    "CREATE TABLE audit_queue(seq INTEGER PRIMARY KEY NOT NULL, line TEXT NOT NULL) STRICT",
    "PRAGMA user_version=1",
    // A table of its own, not columns: rows carry sums, which SQL cannot make anew.
    "CREATE TABLE managed(sandbox TEXT PRIMARY KEY NOT NULL, origin TEXT NOT NULL,"
    " source TEXT NOT NULL, sum TEXT NOT NULL) STRICT",
    "PRAGMA user_version=2",
};

// Where the statements begin that lift a schema of this number.
constexpr std::array<std::size_t, 2> kBegin{0, 10};

static_assert(kSchemaVersion == kBegin.size(), "append the next step, and where it begins");

}  // namespace

// Those from the file's number on: a step that a release has shipped runs exactly once.
std::span<const std::string_view> migrations_from(int version)
{
    if (version >= kSchemaVersion || version < 0) return {};
    return std::span(kStatements).subspan(kBegin.at(static_cast<std::size_t>(version)));
}

}  // namespace sandbox::ledger
