// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "audit/audit.hpp"
#include "base/result.hpp"
#include "canon/canon.hpp"
#include "ledger/ledger.hpp"
#include "supervisor/service.hpp"

namespace sandbox::supervisor {

// One event as `sandboxctl events` prints it (docs/formats/events.md):
// {"seq","time","event","id","name","generation", then what belongs to its kind}. Pure.
// Never fails: a record's kinds are a closed set.
canon::Json to_event(std::uint64_t seq, const audit::AuditRecord& record);

// True when the query asks for it. Pure.
bool is_asked_for(const EventQuery& query, std::uint64_t seq, const audit::Subject& subject);

// Oldest first: what is in the audit log, then what is still queued in the ledger; each once. With
// `follow` it then waits for more until the sink says no or `stop_fd`, if given, becomes readable
// (borrowed; -1: none). `state_dir` holds both files. Code::corrupt for a damaged log: `audit
// verify` says where.
[[nodiscard]] Status read_events(const std::string& state_dir, ledger::Ledger& ledger,
                                 const EventQuery& query, const EventSink& sink, int stop_fd = -1);

}  // namespace sandbox::supervisor
