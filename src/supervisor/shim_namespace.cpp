// SPDX-License-Identifier: Apache-2.0
#include "supervisor/shim_namespace.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <optional>

#include "sys/fd.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"
#include "sys/procfs.hpp"

namespace sandbox::supervisor {

namespace {

constexpr Millis kLook{10'000};  // docs/protocol.md: reply deadline
constexpr Millis kDying{5'000};  // killed, it only frees its memory
constexpr std::size_t kMostWords = 4096;
constexpr std::string_view kHeld = "+";

Status enter(const sys::UniqueFd& users)
{
    if (::setns(users.get(), CLONE_NEWUSER) != 0) return fail_errno("setns", "user namespace");
    if (::syscall(SYS_setresgid, 0, 0, 0) != 0) return fail_errno("setresgid");
    if (::syscall(SYS_setresuid, 0, 0, 0) != 0) return fail_errno("setresuid");
    return {};
}

}  // namespace

Status in_namespace_of(const sys::ProcessIdentity& shim, const std::function<Status()>& look)
{
    const sys::Pidfd handle = TRY(sys::Pidfd::open(shim));
    const sys::ProcDir proc = TRY(sys::ProcDir::open(shim.pid));
    const sys::UniqueFd users = TRY(proc.open_namespace("user"));
    // The folder was of that process, or it has ended by now and the number may be another's.
    if (TRY(handle.ended())) return fail(Code::unavailable, "the shim ended");
    sys::SocketPair pair = TRY(sys::socket_pair(sys::SocketType::seqpacket));
    auto child = TRY(sys::clone_process({}));
    if (child.pid == 0) {
        static_cast<void>(sys::set_parent_death_signal(SIGKILL));
        Status outcome = enter(users);
        if (outcome) outcome = look();
        const std::string words = outcome ? std::string(kHeld)
                                          : outcome.error().message().substr(0, kMostWords);
        static_cast<void>(sys::write_all(pair.second.get(), words));
        ::_exit(EXIT_SUCCESS);
    }
    pair.second.reset();
    const sys::Pidfd looker(std::move(child.pidfd), child.pid);
    const auto hear = [&]() -> Result<std::string> {
        if (TRY(sys::poll_one(pair.first.get(), POLLIN, sys::Deadline::after(kLook))) == 0)
            return fail(Code::deadline_exceeded, "evidence of the session took too long");
        return TRY(sys::recv_fds(pair.first.get(), kMostWords, 0)).bytes;
    };
    const auto words = hear();
    static_cast<void>(looker.send_signal(SIGKILL));
    static_cast<void>(looker.wait_exit(sys::Deadline::after(kDying)));
    if (!words) return fail(words.error());
    if (*words == kHeld) return {};
    return fail(Code::denied, words->empty() ? "whoever reads the evidence ended" : *words);
}

}  // namespace sandbox::supervisor
