// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace sandbox::sys {

// Default disposition for every signal and an empty mask: ignored signals and the mask pass through
// fork and execve (signal(7)), and are the caller's own business. For a single-threaded child.
void reset_signals() noexcept;

}  // namespace sandbox::sys
