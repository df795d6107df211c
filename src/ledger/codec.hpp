// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "ledger/records.hpp"

// Records to and from table rows. Pure: what a damaged or forged file can hold ends here, as
// Code::corrupt. The columns are those of docs/formats/ledger.md, in its order, without `sum`.
namespace sandbox::ledger {

// Only these two: the tables are STRICT, and a NULL, a real or a blob is damage.
using Value = std::variant<std::int64_t, std::string>;
using Row = std::vector<Value>;

// A text may not be longer than this, in or out (labels, results, paths are far below it).
inline constexpr std::size_t kMaxText = 1U << 20;

enum class Table { sandbox, entry, operation, meta, managed };

// The table's and its columns' names as in the schema; the views live for ever.
std::string_view name_of(Table table) noexcept;
std::span<const std::string_view> columns_of(Table table) noexcept;

// The checksum column: the first 16 hex digits of a SHA-256 over the table's name and all values.
// It finds damage and careless edits; root can forge it.
std::string row_sum(Table table, std::span<const Value> values);
// Splits a stored row (values, then sum) and checks it. Code::corrupt when the sum or the number of
// values is wrong.
[[nodiscard]] Result<Row> checked(Table table, Row stored);

// `sum` is not part of a Row: Connection::insert and update add it, select takes it off. The
// readers give Code::corrupt for a wrong type, an unknown word, a number out of range or a bad
// sandbox id.
Row to_row(const Sandbox& sandbox);
Row to_row(const Entry& entry);
Row to_row(const Claim& claim);
Row to_row(const Managed& managed);
[[nodiscard]] Result<Sandbox> sandbox_from(const Row& row);
[[nodiscard]] Result<Entry> entry_from(const Row& row);
[[nodiscard]] Result<Claim> claim_from(const Row& row);
[[nodiscard]] Result<Managed> managed_from(const Row& row);

}  // namespace sandbox::ledger
