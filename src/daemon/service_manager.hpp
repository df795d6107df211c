// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/units.hpp"
#include "sys/fd.hpp"

// What a service manager and its daemon tell each other: sd_notify(3), sd_listen_fds(3),
// sd_watchdog_enabled(3). The formats are stable and small; libsystemd is not linked.
namespace sandbox::daemon {

// "READY=1", "STOPPING=1", "STATUS=…", one assignment a line. Nothing happens without a manager;
// failures are ignored, as sd_notify(3) advises. Sent from this process only: the manager looks at
// the sender's pid.
void notify(std::string_view state);

// Sockets that the manager opened for us; taken once, owned by the caller, close-on-exec. Empty:
// there are none. The environment variables are removed. invalid_argument: they do not hold what
// they say; the process should not go on.
[[nodiscard]] Result<std::vector<sys::UniqueFd>> take_listeners();

// How often WATCHDOG=1 is due: half the time the manager waits. Nothing: it does not watch.
std::optional<Millis> watchdog_interval();

}  // namespace sandbox::daemon
