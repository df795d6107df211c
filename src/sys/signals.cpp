// SPDX-License-Identifier: Apache-2.0
#include "sys/signals.hpp"

#include <csignal>

namespace sandbox::sys {

void reset_signals() noexcept
{
    struct sigaction action{};
    action.sa_handler = SIG_DFL;
    // SIGKILL and SIGSTOP cannot be set; sigaction says so, and nobody minds.
    for (int signal = 1; signal <= SIGRTMAX; ++signal) ::sigaction(signal, &action, nullptr);
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace sandbox::sys
