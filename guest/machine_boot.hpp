// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "base/result.hpp"
#include "sys/fd.hpp"

// The first steps of PID 1 of a kernel of its own, in the initrd's root (docs/formats/
// guest-image.md), and its last one.
namespace sandbox::guest {

struct Booted {
    sys::UniqueFd port;  // non-blocking, connected
    std::size_t modules = 0;
};
// Mounts /dev, /proc, /sys and /sys/fs/cgroup, loads the modules, finds the port by its name and
// waits until the host's side is there.
[[nodiscard]] Result<Booted> boot_machine();

// PRIVILEGED: ends the kernel. With reboot=t and -no-reboot that is the end of the VMM.
[[noreturn]] void power_off();

}  // namespace sandbox::guest
