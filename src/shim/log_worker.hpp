// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"
#include "shim/request.hpp"
#include "sys/fd.hpp"
#include "sys/process.hpp"

namespace sandbox::shim {

// One workload output: where it comes from and, for a client in the foreground, where it also goes.
struct LogInput {
    sys::UniqueFd from;  // read end of the workload's pipe
    sys::UniqueFd copy;  // the client's own descriptor, or none
    Output copy_as = Output::log_only;
};

struct LogWorker {
    sys::Pidfd process;
    sys::UniqueFd ended;  // hangs up when the worker is gone; not the workload's pipes
};

// Starts the worker: a child that drains both streams through end of file into the log folder,
// whoever of shim, client and workload dies first. `marker` is the "shim:ID" argument of this
// process: the child's copy becomes "log:ID", by which it is found should its identity get lost.
// Requires: a single-threaded caller.
[[nodiscard]] Result<LogWorker> start_log_worker(const std::string& log_dir, LogLimits limits,
                                                 LogInput out, LogInput err, char* marker);

}  // namespace sandbox::shim
