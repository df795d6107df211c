// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.hpp"
#include "daemon/log.hpp"
#include "daemon/options.hpp"

namespace sandbox::daemon {

// Serves until SIGTERM or SIGINT, and then until calls at work have ended (60 s at most). Blocks.
// Errors: it could not begin (conflict: another one serves; what listening says). Call once, before
// any thread is started; `log` is borrowed.
[[nodiscard]] Status serve(const Options& options, const Log& log);

// [{"method","path","operation","upgrade","query","body"}]: what tests hold the documents against.
std::string describe_routes();

}  // namespace sandbox::daemon
