// SPDX-License-Identifier: Apache-2.0
#include "sys/cgroup/join.hpp"

#include <unistd.h>

#include <cerrno>

namespace sandbox::sys::cgroup {

int join_self(std::span<const int> tasks) noexcept
{
    // Not cgroup.procs: that write waits for an RCU grace period, 5 to 13 ms (facts).
    for (const int fd : tasks)
        if (::write(fd, "0", 1) != 1) return errno;
    return 0;
}

}  // namespace sandbox::sys::cgroup
