// SPDX-License-Identifier: Apache-2.0
#include "shim/rootless.hpp"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "base/failpoint.hpp"
#include "driver/backend.hpp"
#include "plan/plan.hpp"
#include "probe/subordinate.hpp"
#include "sys/file.hpp"
#include "sys/mount.hpp"
#include "sys/net/unix.hpp"
#include "sys/process.hpp"

namespace sandbox::shim {

namespace {

// Two small programs that read a file each.
constexpr Millis kMapping{10'000};
constexpr char kGone = 'u';    // to the helper: the namespaces are new
constexpr char kMapped = 'm';  // from it

// Stays behind in the old namespace, where alone the ids may be given away. Says how it went.
[[noreturn]] void map_from_outside(int socket, pid_t shim)
{
    static_cast<void>(sys::set_parent_death_signal(SIGKILL));
    char word = 0;
    if (::read(socket, &word, 1) != 1 || word != kGone) ::_exit(EXIT_FAILURE);
    const auto range = probe::own_range(plan::SecurityPlan{}.id_count);
    const Status mapped = range ? probe::map_by_helpers(shim, *range) : fail(range.error());
    const std::string words = mapped ? std::string(1, kMapped) : mapped.error().message();
    static_cast<void>(sys::write_all(socket, words));
    ::_exit(mapped ? EXIT_SUCCESS : EXIT_FAILURE);
}

Status await_maps(int socket)
{
    const auto deadline = sys::Deadline::after(kMapping);
    if (TRY(sys::poll_one(socket, POLLIN, deadline)) == 0)
        return fail(Code::deadline_exceeded, "newuidmap and newgidmap took too long");
    const std::string words = TRY(sys::recv_fds(socket, 4096, 0)).bytes;
    if (words == std::string(1, kMapped)) return {};
    return fail(Code::unavailable, words.empty() ? "whoever maps our ids ended" : words);
}

// Root inside, and nothing of the user's groups: they would be rights that nobody sees.
Status become_root()
{
    if (::syscall(SYS_setgroups, 0, nullptr) != 0) return fail_errno("setgroups");
    if (::syscall(SYS_setresgid, 0, 0, 0) != 0) return fail_errno("setresgid");
    if (::syscall(SYS_setresuid, 0, 0, 0) != 0) return fail_errno("setresuid");
    return {};
}

}  // namespace

bool is_ordinary_user() noexcept { return ::geteuid() != 0; }

Status enter_user_namespace(char** argv)
{
    sys::SocketPair meeting = TRY(sys::socket_pair(sys::SocketType::seqpacket));
    const pid_t self = ::getpid();
    auto helper = TRY(sys::clone_process({}));
    if (helper.pid == 0) {
        meeting.first.reset();
        map_from_outside(meeting.second.get(), self);
    }
    meeting.second.reset();
    const sys::Pidfd outside(std::move(helper.pidfd), helper.pid);
    const auto enter = [&]() -> Status {
        // Both at once: mounts are root's of the new user namespace, and are seen by nobody else.
        TRY_VOID(sys::unshare_namespaces(CLONE_NEWUSER | CLONE_NEWNS));
        TRY_VOID(sys::write_all(meeting.first.get(), std::string_view(&kGone, 1)));
        TRY_VOID(await_maps(meeting.first.get()));
        return become_root();
    };
    const Status entered = enter();
    meeting.first.reset();
    static_cast<void>(outside.send_signal(SIGKILL));
    static_cast<void>(outside.wait_exit(sys::Deadline::after(kMapping)));
    if (!entered) return entered;
    failpoint("shim.mapped");
    // PRIVILEGED: only towards what the maps hold. The link is the kernel's own: what ran is what runs.
    ::execve("/proc/self/exe", argv, environ);
    return fail_errno("execve", "/proc/self/exe");
}

}  // namespace sandbox::shim
