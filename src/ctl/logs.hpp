// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.hpp"
#include "ctl/command_line.hpp"
#include "supervisor/service.hpp"

namespace sandbox::ctl {

// Prints the stored records, oldest file first: stdout's bytes to stdout, stderr's to stderr,
// escaped where a terminal reads them. With follow, waits for more until the sandbox has ended and
// its log worker has written the last line; blocks until then. Errors are the service's (not_found:
// no such sandbox), and invalid_argument for a bad --since.
[[nodiscard]] Status show_logs(supervisor::SandboxService& service, const Logs& options);

}  // namespace sandbox::ctl
