// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "sys/fd.hpp"

// sandbox-init as PID 1 of a kernel of its own (docs/protocol.md, "A guest of its own kernel").
namespace sandbox::guest {

// From the initrd to the end of the sandbox; then the power goes.
[[noreturn]] void run_machine();

// What comes after the boot, on the connected port; returns at the end of the sandbox. For whoever
// stands between it and the port (tests).
int serve_machine(sys::UniqueFd port, std::size_t modules);

// The same protocol over a socket, as an ordinary process: for tests. Clock, tree and limits are
// the host's there: a MACHINE that asks for any is refused. The exit status.
int run_on_socket(sys::UniqueFd socket);

}  // namespace sandbox::guest
