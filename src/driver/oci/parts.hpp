// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/filter.h>

#include <span>
#include <string>
#include <vector>

#include "driver/oci/compile.hpp"
#include "sys/seccomp/rules.hpp"

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

// The machine the plan was made for, by its facts.
[[nodiscard]] Result<sys::seccomp::Arch> architecture(const plan::PlanContent& plan);
// struct sock_filter as the kernel and crun take it.
std::string bpf_bytes(std::span<const sock_filter> program);

// Mounts that crun adds to every root, "/dev/pts" style.
std::span<const std::string_view> base_mounts() noexcept;

}  // namespace sandbox::driver::oci
