// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"
#include "supervisor/service.hpp"

namespace sandbox::control {

// The client's side of an upgraded connection: the console's descriptors on one side, frames on the
// other, until the result comes; returns it. Output for a terminal that is not in raw mode is made
// safe for it. Without a Steering, SIGINT, SIGTERM, SIGHUP and SIGQUIT of this process go to the
// workload. unavailable: the connection ended before the result.
[[nodiscard]] Result<std::string> pump(int socket, std::string received,
                                       const supervisor::Console& console, bool input);

}  // namespace sandbox::control
