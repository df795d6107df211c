// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/filter.h>

#include <span>
#include <vector>

#include "sys/seccomp/rules.hpp"

namespace sandbox::sys::seccomp {

// Pure: same profile, same program. At most BPF_MAXINSNS (4096) instructions, in practice < 400.
std::vector<sock_filter> compile(Profile profile, Arch arch);

// For tests and other rule sets. Requires: sorted by name, each name once.
std::vector<sock_filter> compile(std::span<const Rule> rules, Arch arch);

}  // namespace sandbox::sys::seccomp
