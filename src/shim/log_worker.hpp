// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "shim/log_progress.hpp"
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

// What another worker needs to go on where one was killed. The pipes stay open with it: their
// writers wait, where a closed pipe would have ended them.
struct LogSpares {
    std::string log_dir;
    LogLimits limits;
    LogInput out;
    LogInput err;
    LogProgress progress;
    bool vacant = false;  // a worker was killed and the next one is not there yet
    int deaths = 0;  // in a row, without a byte read in between
    std::uint64_t come_to = 0;  // bytes read at the last death
};

struct LogWorker {
    sys::Pidfd process;
    sys::UniqueFd ended;  // hangs up when the worker is gone; not the workload's pipes
    std::optional<LogSpares> spares;  // none: nobody takes over
};

// Starts the worker: a child that drains both streams through end of file into the log folder,
// whoever of shim, client and workload dies first. `marker` is the "shim:ID" argument of this
// process: the child's copy becomes "log:ID", by which it is found should its identity get lost.
// The inputs are taken over; copies of them stay here as spares, so the workload sees no end of
// file before those are dropped. Requires: a single-threaded caller.
[[nodiscard]] Result<LogWorker> start_log_worker(const std::string& log_dir, LogLimits limits,
                                                 LogInput out, LogInput err, char* marker);

// For a worker whose `ended` hung up. True: it was killed, and another one reads on in its place;
// the log says how many bytes were in the dead one's hands at most. False: it had drained both
// streams, or no worker stays alive here; the spares are gone. A failure may be tried again.
[[nodiscard]] Result<bool> revive(LogWorker& worker, char* marker);

}  // namespace sandbox::shim
