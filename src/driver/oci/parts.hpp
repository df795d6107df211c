// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"
#include "driver/oci/compile.hpp"

// The pieces of compile(); nobody outside this folder includes it.
namespace sandbox::driver::oci {

[[nodiscard]] Result<std::string> compile_config(const plan::ExecutionPlan& plan,
                                                 const Binding& binding);

}  // namespace sandbox::driver::oci
