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

using Value = std::variant<std::int64_t, std::string>;
using Row = std::vector<Value>;

// A text may not be longer than this, in or out (labels, results, paths are far below it).
inline constexpr std::size_t kMaxText = 1U << 20;

enum class Table { sandbox, entry, operation, meta, managed };

std::string_view name_of(Table table) noexcept;
std::span<const std::string_view> columns_of(Table table) noexcept;

// The checksum column: 16 hex digits over the table's name and all values.
std::string row_sum(Table table, std::span<const Value> values);
// Splits a stored row (values, then sum) and checks it.
[[nodiscard]] Result<Row> checked(Table table, Row stored);

Row to_row(const Sandbox& sandbox);
Row to_row(const Entry& entry);
Row to_row(const Claim& claim);
Row to_row(const Managed& managed);
[[nodiscard]] Result<Sandbox> sandbox_from(const Row& row);
[[nodiscard]] Result<Entry> entry_from(const Row& row);
[[nodiscard]] Result<Claim> claim_from(const Row& row);
[[nodiscard]] Result<Managed> managed_from(const Row& row);

}  // namespace sandbox::ledger
