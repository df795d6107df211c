// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/filter.h>

#include <span>

namespace sandbox::sys::seccomp {

// PRIVILEGED: irreversible for this thread and all it makes. Sets no_new_privs, then
// SECCOMP_SET_MODE_FILTER. Async-signal-safe; 0 or an errno. Single-threaded callers only.
int load(std::span<const sock_filter> program) noexcept;

}  // namespace sandbox::sys::seccomp
