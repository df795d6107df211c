// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "driver/oci/compile.hpp"

// The pieces of compile(); nobody outside this folder includes it.
namespace sandbox::driver::oci {

[[nodiscard]] Result<std::vector<TreeStep>> compile_tree(const plan::ExecutionPlan& plan,
                                                         const Binding& binding);
[[nodiscard]] Result<std::string> compile_config(const plan::ExecutionPlan& plan,
                                                 const Binding& binding);
[[nodiscard]] Result<std::string> compile_bootstrap(const plan::ExecutionPlan& plan,
                                                    const Binding& binding);

// What PID 1 holds: to change identity, to shed, to signal; and what sessions may keep.
std::vector<std::string> init_capabilities(const plan::PlanContent& plan);

// Mounts that crun adds to every root, "/dev/pts" style.
std::span<const std::string_view> base_mounts() noexcept;

}  // namespace sandbox::driver::oci
