// SPDX-License-Identifier: Apache-2.0
#include "driver/coming_up.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/diagnostic.hpp"
#include "driver/groups.hpp"
#include "sys/net/unix.hpp"
#include "wire/wire.hpp"

namespace sandbox::driver {
namespace {

// What of a helper's words enters an error.
constexpr std::size_t kWordsLimit = 4096;
constexpr std::chrono::milliseconds kEndDeadline{10'000};

}  // namespace

std::string drain_words(int diagnostics)
{
    std::string text;
    char chunk[1024];
    while (text.size() < kWordsLimit) {
        const ssize_t got = ::read(diagnostics, chunk, sizeof chunk);
        if (got <= 0) break;
        text.append(chunk, static_cast<std::size_t>(got));
    }
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return escaped(text);
}

Result<sys::Pidfd> take_init_up(int channel)
{
    const auto packet = TRY(sys::recv_fds(channel, wire::kMaxInitPacket, 0));
    if (packet.bytes.empty())
        return fail(Code::unavailable, "PID 1 closed its channel before it was up");
    const auto message = TRY(
        wire::decode_packet(wire::Direction::to_host, std::as_bytes(std::span(packet.bytes))));
    if (const auto* log = std::get_if<wire::InitLog>(&message))
        return fail(Code::unavailable, "PID 1: " + escaped(log->text));
    const auto* up = std::get_if<wire::InitUp>(&message);
    if (up == nullptr || up->version != wire::kProtocolVersion || up->pid != 1)
        return fail(Code::corrupt, "the first packet of PID 1 is not INIT_UP");
    if (!packet.pid) return fail(Code::corrupt, "INIT_UP came without credentials");
    return TRY_WITH(sys::Pidfd::open(*packet.pid), "PID 1");
}

Result<sys::Pidfd> await_init(int channel, const sys::Pidfd& process, sys::Deadline deadline)
{
    pollfd set[2] = {{channel, POLLIN, 0}, {process.fd(), POLLIN, 0}};
    for (;;) {
        const int ready = ::poll(set, 2, deadline.poll_timeout());
        if (ready < 0 && errno == EINTR) continue;
        if (ready < 0) return fail_errno("poll");
        if (ready == 0) return fail(Code::deadline_exceeded, "PID 1 did not speak in time");
        break;
    }
    // What it said before it ended is still there to be read.
    if (set[0].revents == 0) return fail(Code::unavailable, "PID 1 ended before it was up");
    sys::Pidfd init = TRY(take_init_up(channel));
    if (init.pid() != process.pid())
        return fail(Code::foreign, "INIT_UP came from another process than PID 1");
    return init;
}

void end_sandbox(const plan::ExecutionPlan& plan, const Binding& binding)
{
    // Listed before the kill: once dead they are in no cgroup, but zombies of ours.
    std::vector<pid_t> mine;
    if (const auto groups = open_groups(plan, binding)) {
        if (auto processes = groups->top->processes()) mine = *processes;
        // Reported by the census of whoever called; here there is only the first error.
        [[maybe_unused]] const auto killed = groups->top->kill_all(
            sys::Deadline::after(kEndDeadline));
    }
    // PID 1 and the like came to us as orphans, or are ours.
    for (const pid_t pid : mine) ::waitpid(pid, nullptr, 0);
}

}  // namespace sandbox::driver
