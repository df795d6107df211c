// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/error.hpp"
#include "base/result.hpp"
#include "ledger/records.hpp"
#include "supervisor/shim_client.hpp"

namespace sandbox::supervisor {

inline constexpr Millis kShimAnswer{10'000};  // docs/protocol.md: reply deadline

// Active by the ledger, and nobody is there: only a reconcile can say what became of it.
Error dead_shim(const ledger::Sandbox& sandbox);
// "NAME does not run (state …)".
Error does_not_run(const ledger::Sandbox& sandbox);

// Sends it and waits for the answer; a refusal is Code::conflict with the shim's own words.
[[nodiscard]] Status expect_accepted(ShimConnection& connection, const shim::Request& request);

}  // namespace sandbox::supervisor
