// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"
#include "plan/plan.hpp"
#include "supervisor/service.hpp"

namespace sandbox::supervisor {

// Carries a tar stream between the caller's descriptor and a session of sandbox-init that packs or
// unpacks it inside. Every byte passes through this process: the sandbox sees pipes of ours only,
// and what comes out of it is checked here (names, kinds, limits) before anybody gets to read it.
// `run_dir` is the running sandbox's folder of sockets. Blocks until the session has ended.
[[nodiscard]] Result<CopyResult> copy_files(const std::string& run_dir,
                                            const plan::ExecutionPlan& plan,
                                            const CopyRequest& request);

}  // namespace sandbox::supervisor
