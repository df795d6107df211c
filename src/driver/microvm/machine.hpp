// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.hpp"
#include "driver/microvm/compile.hpp"
#include "wire/machine.hpp"

namespace sandbox::driver::microvm {

// What the guest is told beside its bootstrap: the artifact's tree and the plan's limits, in the
// words of the protocol. Pure. Code::invalid_argument for what they do not express (a bug of the
// compiler: law 1).
[[nodiscard]] Result<wire::Machine> machine_of(const plan::ExecutionPlan& plan,
                                               const MicrovmArtifact& artifact);

}  // namespace sandbox::driver::microvm
