// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "control/loop.hpp"
#include "control/metrics.hpp"
#include "control/worker.hpp"
#include "sys/fd.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::control {

// What one client may cost. Times in milliseconds. Choices of ours: several hundred clients at
// once, none of which can keep the others out.
struct ServerLimits {
    std::size_t connections = 256;
    std::size_t connections_a_user = 192;
    std::size_t quick_workers = 24;   // further calls wait for one to end
    std::size_t long_workers = 512;   // streams, waits, followers; further ones are refused
    std::size_t long_workers_a_user = 384;
    Millis header_time{10'000};
    Millis body_time{30'000};
    Millis idle_time{60'000};
    Millis write_time{30'000};  // a reader that takes nothing for so long has gone
};

struct LogField {
    std::string_view name;  // journald's form: SANDBOX_ID
    std::string value;
};
// Once per answered request and per connection that was ended for cause.
using LogRequest =
    std::function<void(int priority, std::string_view message, std::span<const LogField> fields)>;

struct ServerParts {
    // `work` and `metrics` run in a fork: what they change is not seen here.
    ServerLimits limits;
    Work work;            // runs in a worker
    // Runs in a worker: the text of /metrics.
    std::function<Result<std::string>(const Counters& counters)> metrics;
    std::string version;  // the body of /v1/version
    LogRequest log;
};

// HTTP/1.1 on listening unix sockets. One thread: run the loop. Who may connect is the socket's
// mode, checked again by SO_PEERCRED: root, our own user and the group of the socket. The loop must
// outlive it. Calls are done by worker processes, so a crash of one costs one answer.
class Server {
public:
    Server(Loop& loop, ServerParts parts);
    ~Server();

    // Members of `group` may connect too.
    [[nodiscard]] Status listen(sys::UniqueFd listener, gid_t group);
    // Takes one connected socket; what a listener does with those it accepts.
    [[nodiscard]] Status serve(sys::UniqueFd socket);
    // No new connections or requests; `done` is called when quick calls have ended, at the latest
    // after `patience`. Streams and waits are cut: their sandboxes go on.
    void drain(Millis patience, std::function<void()> done);
    Counters& counters() noexcept;

private:
    struct State;
    std::shared_ptr<State> state_;
};

}  // namespace sandbox::control
