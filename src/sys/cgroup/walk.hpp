// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace sandbox::sys::cgroup {

// Relative paths of every cgroup below a folder descriptor, parents before children; "." is first.
// Bounded, since a workload may have made them. Folders that vanish meanwhile are left out.
[[nodiscard]] Result<std::vector<std::string>> subtree(int dir);

// "key value" lines, as of memory.events or cpu.stat. 0 when the key is not there.
std::uint64_t keyed_value(std::string_view text, std::string_view key) noexcept;

// Waits one millisecond: for states that the kernel does
// not announce (a v1 freezer, a dying cgroup).
void pause_briefly() noexcept;

// Without the newline at the end.
std::string trimmed(std::string text);

}  // namespace sandbox::sys::cgroup
