// SPDX-License-Identifier: Apache-2.0
#include "base/failpoint.hpp"

#ifdef SANDBOX_FAILPOINTS

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "base/result.hpp"

namespace sandbox {

void failpoint(const char* name) noexcept
{
    if (const char* log = std::getenv("SANDBOX_FAILPOINT_LOG")) {
        // Kept open on purpose: the number of passes is small and nothing may be closed here.
        static const int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        const std::string line = std::string(name) + "\n";
        if (write(fd, line.data(), line.size()) < 0) return;
    }
    const char* wanted = std::getenv("SANDBOX_FAILPOINT");
    if (wanted != nullptr && std::string(wanted) == name) raise(SIGKILL);
}

}  // namespace sandbox

#endif
