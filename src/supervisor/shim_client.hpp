// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/result.hpp"
#include "driver/driver.hpp"
#include "shim/control_protocol.hpp"
#include "shim/request.hpp"
#include "supervisor/host.hpp"
#include "sys/deadline.hpp"
#include "sys/fd.hpp"
#include "sys/process.hpp"

// A shim as its supervisor sees it: started, asked, waited for.
namespace sandbox::supervisor {

// One seqpacket connection. Move-only, one thread. Nothing is retried: the shim remembers no
// requests, so only the caller knows what may be said twice.
class ShimConnection {
public:
    explicit ShimConnection(sys::UniqueFd socket) : socket_(std::move(socket)) {}

    // Of a running sandbox; blocks up to 5 s for its greeting. not_found: nobody listens;
    // unavailable: it is about to end.
    [[nodiscard]] static Result<ShimConnection> open(const std::string& run_dir);

    [[nodiscard]] Status send(const shim::Request& request, std::span<const int> fds = {});
    // Nothing at the end of the connection: the shim is gone. deadline_exceeded; corrupt for a
    // packet that does not decode.
    [[nodiscard]] Result<std::optional<shim::Reply>> receive(sys::Deadline deadline);
    int fd() const noexcept { return socket_.get(); }

private:
    sys::UniqueFd socket_;
};

// A shim that has been given nothing yet: dropping this ends it.
struct FreshShim {
    ShimConnection connection;
    sys::Pidfd process;
    sys::ProcessIdentity identity;
};

// Starts a shim that seals its programs and waits for the request. Nothing of a sandbox exists
// yet; closing the connection ends it.
[[nodiscard]] Result<FreshShim> start_shim(const Host& host, const SandboxId& id);

// Says that the intents of the submitted request are durable: the shim acts from here on.
[[nodiscard]] Status release(ShimConnection& connection);

// Hands over the request, before its intents are committed; `fds` (borrowed) are stdin, stdout,
// stderr as far as the request names them. The shim prepares, and waits for release().
[[nodiscard]] Status submit(ShimConnection& connection, const shim::LaunchRequest& request,
                            std::span<const int> fds);

}  // namespace sandbox::supervisor
