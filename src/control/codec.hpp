// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "canon/canon.hpp"
#include "control/calls.hpp"
#include "supervisor/service.hpp"

// Values of the service as JSON, both ways. Pure. What decodes here came from the daemon: members
// that a newer one adds are passed over, and damage is Code::corrupt.
namespace sandbox::control {

canon::Json to_json(const Error& error);  // {"error":{…}}
Error error_from_json(const canon::Json& json);

canon::Json to_json(const std::vector<Diagnostic>& diagnostics);  // {"diagnostics":[…]}
[[nodiscard]] Result<std::vector<Diagnostic>> diagnostics_from_json(const canon::Json& json);
[[nodiscard]] Result<std::vector<resolve::Denial>> denials_from_json(const canon::Json& json);

canon::Json to_json(const std::optional<ledger::Exit>& exit);
[[nodiscard]] Result<std::optional<ledger::Exit>> exit_from_json(const canon::Json* json);

canon::Json to_json(const supervisor::RunResult& result);
[[nodiscard]] Result<supervisor::RunResult> run_result_from_json(const canon::Json& json);
canon::Json to_json(const supervisor::SessionResult& result);
[[nodiscard]] Result<supervisor::SessionResult> session_result_from_json(const canon::Json& json);
canon::Json to_json(const supervisor::SessionInfo& info);
[[nodiscard]] Result<supervisor::SessionInfo> session_info_from_json(const canon::Json& json);
canon::Json to_json(const supervisor::Stats& stats);
[[nodiscard]] Result<supervisor::Stats> stats_from_json(const canon::Json& json);
canon::Json to_json(const supervisor::CopyResult& result);
[[nodiscard]] Result<supervisor::CopyResult> copy_result_from_json(const canon::Json& json);
canon::Json to_json(const supervisor::Report& report);
[[nodiscard]] Result<supervisor::Report> report_from_json(const canon::Json& json);
canon::Json to_json(const supervisor::ApplyResult& result);
[[nodiscard]] Result<supervisor::ApplyResult> apply_result_from_json(const canon::Json& json);

// One element of `ps -o json`, and with detail what else a client of ours shows.
canon::Json to_json(const supervisor::Listed& listed, bool detail);
[[nodiscard]] Result<supervisor::Listed> listed_from_json(const canon::Json& json);

struct Verdict {
    std::optional<audit::Broken> broken;
    audit::Head head;
};
canon::Json to_json(const Verdict& verdict);
[[nodiscard]] Result<Verdict> verdict_from_json(const canon::Json& json);

// Bodies of requests, for the client. The daemon's side of them is decode.cpp, which is strict.
canon::Json to_json(const supervisor::ProfileText& profile);
void put_adjustments(canon::Json& body, const supervisor::Adjustments& adjustments);
void put_console(canon::Json& body, const supervisor::Console& console, bool input);
canon::Json to_json(const supervisor::ExecRequest& request);
canon::Json to_json(const supervisor::AttachRequest& request);
canon::Json to_json(const supervisor::CopyRequest& request);
[[nodiscard]] Result<canon::Json> to_json(const supervisor::ApplyRequest& request);

}  // namespace sandbox::control
