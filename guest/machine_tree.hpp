// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.hpp"
#include "wire/machine.hpp"

namespace sandbox::guest {

// Mounts the shares and makes the tree of the steps, then enters it: `/` is the workload's root for
// PID 1 and whatever it starts. Nothing is done where there are no steps. What fails here ends the
// boot: half a tree is none. Once, before anything else runs: it changes root and working directory
// of the process.
[[nodiscard]] Status enter_tree(const wire::Machine& machine);

}  // namespace sandbox::guest
