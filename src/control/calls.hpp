// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "control/http.hpp"
#include "supervisor/service.hpp"

// The API as values: which routes there are, and what one request asks of the service. Pure: no
// socket, no clock, no look-up. docs/api.md and docs/openapi.yaml describe the same for people.
namespace sandbox::control {

// Of client and daemon together; the lower of the two wins (docs/api.md, Versions).
inline constexpr int kApiGeneration = 1;

enum class Operation {
    version,
    metrics,
    list,
    inspect,
    plan_of,
    plan,
    run,
    start,
    stop,
    kill,
    restart,
    pause,
    resume,
    touch,
    remove,
    wait,
    stats,
    logs,
    events,
    exec,
    attach,
    sessions,
    signal_session,
    copy,
    apply,
    reconcile,
    verify_audit,
};
std::string_view to_string(Operation operation) noexcept;  // the name of its capability

// Whether a request may, must or must not turn its connection into a stream.
enum class Upgrade { never, may, must };
// quick ends by itself; long waits for a workload or a client, and so never for a free worker.
enum class Duration { quick, long_lasting };

// One path and method. `most_body` is in bytes; 0: no body is taken at all.
struct Route {
    std::string_view method;
    std::string_view pattern;  // "/v1/sandboxes/{ref}/stop"
    Operation operation = Operation::version;
    Upgrade upgrade = Upgrade::never;
    Duration duration = Duration::quick;
    std::size_t most_body = 0;
    std::vector<std::string_view> query;  // keys it knows
};
std::span<const Route> routes();

// Where a plan comes from: a profile with what the invocation adds, or a plan file.
struct PlanSource {
    std::optional<supervisor::ProfileText> profile;
    std::string profile_name;  // one of the daemon's profiles.d
    supervisor::Adjustments adjustments;
    std::string plan_file;
    std::optional<facts::CapabilitySnapshot> snapshot;
};

// One request, decoded. Only the members of its operation mean anything.
struct Call {
    Operation operation = Operation::version;
    bool upgraded = false;
    Duration duration = Duration::quick;
    std::string operation_id;  // Idempotency-Key
    bool repeated = false;  // an earlier try of this operation was cut short
    std::string request_digest;  // of method, target and body: the same key for another is refused
    std::string reference;
    std::string session;
    bool all = false;
    bool detail = false;
    bool follow = false;
    supervisor::SandboxService::Force force = supervisor::SandboxService::Force::no;
    std::optional<std::chrono::milliseconds> timeout;
    int signal = 0;
    std::uint64_t after = 0;
    std::string since;

    PlanSource plan;
    std::string name;
    bool start = true;  // run; false: create
    supervisor::Keep keep = supervisor::Keep::until_removed;
    bool input = false;  // the stream carries standard input
    supervisor::Console console;  // its shape; descriptors come later
    supervisor::ExecRequest exec;
    supervisor::AttachRequest attach;
    supervisor::CopyRequest copy;
    supervisor::ApplyRequest apply;
};

// What is wrong with a request; becomes an answer as every other failure does.
struct CallFault {
    int status = 400;
    Error error;
};

// The route of a request whose header is there; 404 and 405 otherwise.
[[nodiscard]] std::expected<const Route*, CallFault> find_route(const HttpRequest& request);
// What the request asks, or why it asks nothing that can be done. Nothing of the host is looked at.
[[nodiscard]] std::expected<Call, CallFault> decode_call(const Route& route,
                                                         const HttpRequest& request);

// HTTP status of a failure. The code itself is in the body, for a peer that wants to tell more
// apart.
int status_of(Code code) noexcept;
CallFault fault_of(Error error);
// "KILL", "SIGKILL" or a number, signal(7).
std::optional<int> parse_signal(std::string_view text);

}  // namespace sandbox::control
