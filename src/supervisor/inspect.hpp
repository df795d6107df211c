// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "audit/audit.hpp"
#include "base/result.hpp"
#include "canon/canon.hpp"
#include "ledger/ledger.hpp"
#include "supervisor/host.hpp"
#include "supervisor/service.hpp"

namespace sandbox::supervisor {

// One element of `ps -o json`.
canon::Json summarize(const Listed& listed);
// `inspect`: the same and plan digest, labels, controls planned and observed.
[[nodiscard]] Result<canon::Json> describe_sandbox(const Paths& paths, const Listed& listed);
// The state to show: what the ledger says, corrected by whether the shim lives.
std::string shown_state(const Listed& listed);
// The same for a person: "restarting in 4 s".
std::string state_text(const Listed& listed, std::int64_t boottime_ns);

// A sandbox that does not run: undoes what rests with it, keeps its logs, makes it `deleted`, and
// forgets the oldest removed ones.
[[nodiscard]] Status remove_resting(const Host& host, ledger::Ledger& ledger, const SandboxId& id);

[[nodiscard]] Status record_reconcile(const Host& host, ledger::Ledger& ledger,
                                      const Report& report);

// Reads the log line by line. `found` becomes the head that the file has.
[[nodiscard]] Result<std::optional<audit::Broken>> check_audit_file(const std::string& path,
                                                                    const audit::Head& expected,
                                                                    audit::Head& found);
// Events of one sandbox, oldest first.
[[nodiscard]] Result<std::vector<audit::AuditRecord>> audit_of(const std::string& path,
                                                               const SandboxId& id);

}  // namespace sandbox::supervisor
