// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <string>

#include "guest/boot.hpp"
#include "guest/init.hpp"

// sandbox-init: PID 1 of a sandbox. Takes no argument, reads no environment: descriptor 5 is its
// sealed record, which names the rest.
namespace {

constexpr int kBootstrapFd = 5;

int die(const sandbox::Error& error)
{
    const std::string text = "sandbox-init: " + error.message() + "\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    return 1;
}

// crun's own streams go no further: its pipes are the launcher's to drain to their end, and
// descriptor 4 is this program, no longer needed.
void release_launch_descriptors()
{
    const sandbox::sys::UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    for (int fd = 0; fd <= STDERR_FILENO && null.valid(); ++fd) ::dup2(null.get(), fd);
    sandbox::sys::close_number(4);
}

}  // namespace

int main()
{
    auto boot = sandbox::guest::read_bootstrap(kBootstrapFd);
    if (!boot) return die(boot.error());
    auto channel = sandbox::guest::adopt_channel(*boot);
    if (!channel) return die(channel.error());
    release_launch_descriptors();
    return sandbox::guest::Init(std::move(*boot), std::move(*channel)).run();
}
