// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "driver/backend.hpp"
#include "driver/driver.hpp"
#include "plan/plan.hpp"
#include "shim/guest_link.hpp"
#include "shim/journal.hpp"
#include "shim/log_worker.hpp"
#include "shim/pty.hpp"
#include "shim/request.hpp"
#include "shim/timing.hpp"

namespace sandbox::shim {

// Descriptors that came with the request; any may be invalid.
struct ClientEnds {
    sys::UniqueFd in;   // read end of the pipe the client feeds
    sys::UniqueFd out;  // the client's own: only log workers ever write to them
    sys::UniqueFd err;
    sys::UniqueFd attached;  // stream of a client that is attached to the terminal from the start
};

// Everything that exists of one start of one sandbox.
struct Generation {
    LaunchRequest request;
    std::optional<plan::ExecutionPlan> plan;
    std::optional<driver::Launched> launched;  // set once PID 1 is up
    std::unique_ptr<ControlStream> control;
    wire::Nonce event_nonce{};  // what the event stream must open with
    std::unique_ptr<SessionStream> service;  // none when idle
    std::optional<LogWorker> log;  // none when idle
    // Where the plan's process has a terminal, until the keeper takes them: both sides of it, the
    // log worker's pipe, and the stream of the client that is attached from the start.
    std::optional<Terminal> terminal;
    sys::UniqueFd terminal_log;
    sys::UniqueFd terminal_client;
    char* log_marker = nullptr;  // of this process, for the log workers of sessions
    int workload_pid = 0;  // on this host; 0 when idle
    sys::ProcessIdentity pid1;
    std::vector<driver::Evidence> evidence;
    std::string artifact_digest;  // of config.json
    std::map<std::string, std::string> bpf;  // filter -> digest as loaded
    Timing timing;
};

struct LaunchFailure {
    std::string step;
    Error error;
    std::vector<driver::Evidence> evidence;  // as far as it was read
};

// What a first launch brings along and a later one has no use for.
struct PrepareOptions {
    // Compiled while the intents became durable; nothing: compiled now.
    driver::ArtifactPtr compiled;
    // Called while the runtime is at work. Its failure is the step "meanwhile".
    std::function<Status()> meanwhile;
};

// From durable intents to the gate: directories, cgroups, log worker, launch, evidence, handshake,
// session, evidence again. Nothing of the workload has run when it returns, in either case. On
// failure what was made is still there: the caller unwinds the ledger.
[[nodiscard]] std::expected<std::unique_ptr<Generation>, LaunchFailure> prepare(
    LaunchRequest request, plan::ExecutionPlan plan, const driver::SealedPrograms& programs,
    ClientEnds client, Journal& journal, Timing timing, char* log_marker,
    PrepareOptions options = {});

// Opens the gate. Requires: every piece of evidence held and was recorded by the caller or will be
// before the answer to the client. For an idle sandbox there is no gate.
[[nodiscard]] Status open_gate(Generation& generation);

}  // namespace sandbox::shim
