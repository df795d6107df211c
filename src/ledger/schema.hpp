// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace sandbox::ledger {

// The statements that lift a ledger of schema `version` (0: an empty file) to kSchemaVersion, one
// transaction's worth. Append-only: what a release has shipped is never edited.
std::span<const std::string_view> migrations_from(int version);

}  // namespace sandbox::ledger
