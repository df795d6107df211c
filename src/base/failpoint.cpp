// SPDX-License-Identifier: Apache-2.0
#include "base/failpoint.hpp"

#ifdef SANDBOX_FAILPOINTS

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

namespace sandbox {

void failpoint(const char* name) noexcept
{
    if (const char* log = std::getenv("SANDBOX_FAILPOINT_LOG")) {
        // Opened anew each time: children close what they did not open, and numbers are reused.
        const int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        const std::string line = std::string(name) + "\n";
        if (fd >= 0 && write(fd, line.data(), line.size()) < 0) std::abort();
        if (fd >= 0) close(fd);
    }
    const char* wanted = std::getenv("SANDBOX_FAILPOINT");
    if (wanted == nullptr || std::string_view(wanted) != name) return;
    kill(getpid(), SIGKILL);
    // PID 1 of a namespace gets no signal from inside it, not even this one (pid_namespaces(7)).
    _exit(128 + SIGKILL);
}

void failpoint(const char* group, std::string_view step) noexcept
{
    failpoint((std::string(group) + "." + std::string(step)).c_str());
}

}  // namespace sandbox

#endif
