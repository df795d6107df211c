// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.hpp"
#include "driver/backend.hpp"
#include "driver/native/compile.hpp"
#include "plan/plan.hpp"

// The effects behind a NativeArtifact: confine makes the box, the tree is built in it, sandbox-init
// runs as its PID 1. No other program is executed on the way.
namespace sandbox::driver::native {

// Requires: make_groups() and the placeholders done. On failure everything in the sandbox's cgroups
// has been killed and reaped; the error carries the words of whatever failed inside.
[[nodiscard]] Result<Launched> launch(const plan::ExecutionPlan& plan, const Binding& binding,
                                      const NativeArtifact& artifact,
                                      const SealedPrograms& programs,
                                      const LaunchOptions& options = {});

const Backend& backend() noexcept;

}  // namespace sandbox::driver::native
