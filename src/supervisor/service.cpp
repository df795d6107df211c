// SPDX-License-Identifier: Apache-2.0
#include "supervisor/service.hpp"

// Verbs that a service does not offer.
namespace sandbox::supervisor {

namespace {

std::unexpected<Error> not_offered(const char* verb)
{
    return fail(Code::unavailable, std::string(verb) + " is not offered by this service");
}

}  // namespace

Result<ApplyResult> SandboxService::apply(const ApplyRequest&) { return not_offered("apply"); }
Result<RunResult> SandboxService::create(const RunRequest&) { return not_offered("create"); }
Result<RunResult> SandboxService::start(std::string_view, Attach, const Console&)
{
    return not_offered("start");
}
Status SandboxService::restart(std::string_view, std::optional<std::chrono::milliseconds>)
{
    return not_offered("restart");
}
Status SandboxService::pause(std::string_view) { return not_offered("pause"); }
Status SandboxService::resume(std::string_view) { return not_offered("resume"); }
Status SandboxService::touch(std::string_view) { return not_offered("touch"); }
Result<Stats> SandboxService::stats(std::string_view) { return not_offered("stats"); }
Status SandboxService::events(const EventQuery&, const EventSink&) { return not_offered("events"); }
Status SandboxService::logs(const LogQuery&, const LogSink&) { return not_offered("logs"); }
Result<SessionResult> SandboxService::exec(const ExecRequest&) { return not_offered("exec"); }
Result<SessionResult> SandboxService::attach(const AttachRequest&) { return not_offered("attach"); }
Result<std::vector<SessionInfo>> SandboxService::sessions(std::string_view)
{
    return not_offered("sessions");
}
Status SandboxService::signal_session(std::string_view, std::string_view, int)
{
    return not_offered("signal_session");
}
Result<CopyResult> SandboxService::copy(const CopyRequest&) { return not_offered("cp"); }

}  // namespace sandbox::supervisor
