// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/result.hpp"
#include "ledger/ledger.hpp"
#include "supervisor/host.hpp"
#include "supervisor/service.hpp"
#include "supervisor/shim_client.hpp"

// One launch: intents into the ledger, the request to the shim, then waiting with it.
namespace sandbox::supervisor {

// Started before the plan is known: to execute and seal its programs takes as long as planning.
// A shim may be started before the plan is known, so that it seals its programs meanwhile.
struct EarlyShim {
    SandboxId id;
    FreshShim shim;
};
// Forks. Requires: this process has no other thread. The shim ends by itself when no request comes.
[[nodiscard]] Result<EarlyShim> start_early(const Host& host);

// Writes every intent in one commit, hands the plan to the shim and waits: until the workload ends,
// or (detached) until it runs. The client's streams travel as descriptors to the log worker.
// `before` is the row of a sandbox that rests and is started again; `early` carries its id. An
// Error means that no workload ran; a launch that failed at a later step is in the result (`why`).
[[nodiscard]] Result<RunResult> launch(const Host& host, ledger::Ledger& ledger, EarlyShim early,
                                       const plan::ExecutionPlan& plan, const RunRequest& request,
                                       const ledger::Sandbox* before = nullptr);

// Refuses with Code::resource_exhausted when as many run as may: the smaller of the operator's and
// the policy's cap. Two launches at once may both pass; the cap is no boundary.
[[nodiscard]] Status check_capacity(const Host& host, ledger::Ledger& ledger);
// What a new sandbox's row says, whether it is run or only created. Without a shim when that is
// null.
[[nodiscard]] Result<ledger::Sandbox> describe_new(const Host& host, const SandboxId& id,
                                                   const plan::ExecutionPlan& plan,
                                                   const RunRequest& request);

// Audit only: a profile that was refused.
[[nodiscard]] Status record_denial(const Host& host, ledger::Ledger& ledger,
                                   const std::string& profile,
                                   const std::vector<resolve::Denial>& denials);

}  // namespace sandbox::supervisor
