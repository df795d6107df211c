// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "confine/box.hpp"

// The child's side of a box; private to this folder.
namespace sandbox::confine {

inline constexpr char kUnshared = 'u';  // child: the tree stands, write the maps
inline constexpr char kBegin = 'g';     // parent: they are written

// v2: joins the cgroup namespace where it was born, clones its successor into the control cgroup,
// names it on `meeting` and ends. `flags` are the successor's namespaces.
[[noreturn]] void be_born_again(const BoxSpec& spec, const BoxOrder& order, int meeting,
                                std::uint64_t flags);

// From the fresh namespaces to the program. A failure is told in words and ends with status 125.
[[noreturn]] void live_in_box(const BoxSpec& spec, const BoxOrder& order, int meeting);

}  // namespace sandbox::confine
