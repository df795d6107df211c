// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "guest/boot.hpp"
#include "guest/init.hpp"
#include "guest/machine.hpp"

// sandbox-init: PID 1 of a sandbox. Takes no argument, reads no environment: descriptor 5 is its
// sealed record, which names the rest. Without one it is PID 1 of a kernel of its own, and a socket
// there is that kernel's channel (tests). Static, and small: it is in every sandbox.
namespace {

// The launcher leaves 3 (channel), 4 (this program) and 5 open: crun's --preserve-fds 3.
constexpr int kBootstrapFd = 5;

int die(const sandbox::Error& error)
{
    // The only place without a channel: before it is adopted.
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

// What descriptor 5 is says where we are.
enum class Place { host, socket, machine };

Place find_place()
{
    struct stat status{};
    if (::fstat(kBootstrapFd, &status) != 0) return ::getpid() == 1 ? Place::machine : Place::host;
    return S_ISSOCK(status.st_mode) ? Place::socket : Place::host;
}

}  // namespace

int main()
{
    const Place place = find_place();
    if (place == Place::machine) sandbox::guest::run_machine();
    if (place == Place::socket)
        return sandbox::guest::run_on_socket(sandbox::sys::UniqueFd(kBootstrapFd));
    auto boot = sandbox::guest::read_bootstrap(kBootstrapFd);
    if (!boot) return die(boot.error());
    auto channel = sandbox::guest::adopt_channel(*boot);
    if (!channel) return die(channel.error());
    // Only now: until here standard error was the way to complain.
    release_launch_descriptors();
    sandbox::guest::ShimLink link(std::move(*channel));
    return sandbox::guest::Init(std::move(*boot), link).run();
}
