// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "audit/audit.hpp"
#include "base/result.hpp"
#include "ledger/ledger.hpp"

// The audit log on disk: STATE/audit.jsonl. Lines become durable in the ledger, in the commit of
// what they tell about; writing them out to the file is not on anybody's way and may be done by
// whoever comes next.
namespace sandbox::shim {

inline constexpr const char* kAuditName = "audit.jsonl";

// Chains the records onto the head and queues their lines within the transaction. All bodies get
// the one subject, time included. conflict: the head moved (not possible while the write lock is
// held).
[[nodiscard]] Status queue_audit(ledger::Ledger& ledger, ledger::Transaction& transaction,
                                 const audit::Subject& subject, std::vector<audit::Body> bodies);

// Appends queued lines to the file, makes them durable, then drops them from the queue. Lines that
// an interrupted flush wrote already are recognised by their sequence number. Also empties a WAL
// grown long: for after the reply. Blocks while another process flushes. corrupt: the file's last
// line is none of ours.
[[nodiscard]] Status flush_audit(ledger::Ledger& ledger, const std::string& state_root);

}  // namespace sandbox::shim
