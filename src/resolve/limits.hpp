// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "resolve/draft.hpp"

// Limits held by cgroups, of this host or of a guest.
namespace sandbox::resolve {

inline constexpr std::uint64_t kPage = 4096;  // x86_64; page_counter limits are whole pages

// PID 1, crun while it starts and a session's launcher: 16 pids and 32 MiB were measured to be
// enough; twice the memory and four times the pids leave room for a crowd of sessions.
inline constexpr std::uint64_t kControlMemory = 64ULL << 20;
inline constexpr std::uint32_t kControlPids = 64;

// `asked` as settings of this host's cgroups; what it cannot hold is denied.
plan::ResourcePlan host_limits(Draft& draft, const profile::Resources& asked);

}  // namespace sandbox::resolve
