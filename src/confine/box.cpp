// SPDX-License-Identifier: Apache-2.0
#include "confine/box.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>

#include "confine/box_inside.hpp"
#include "sys/net/unix.hpp"
#include "sys/procfs.hpp"

namespace sandbox::confine {

namespace {

// An ended child is reaped at once; a killed one frees its memory first.
constexpr std::chrono::milliseconds kDying{5'000};

// Everything but user and net, which the child takes once its tree stands, and cgroup, which is
// rooted where the child is by then.
std::uint64_t birth_flags(const Namespaces& own)
{
    std::uint64_t flags = CLONE_NEWNS;
    if (own.pid) flags |= CLONE_NEWPID;
    if (own.ipc) flags |= CLONE_NEWIPC;
    if (own.uts) flags |= CLONE_NEWUTS;
    return flags;
}

// Exactly `size` bytes within the deadline. Nothing: the child closed its end, so it failed.
Result<bool> read_exactly(int socket, void* into, std::size_t size, sys::Deadline deadline)
{
    auto* at = static_cast<char*>(into);
    while (size > 0) {
        if (TRY(sys::poll_one(socket, POLLIN, deadline)) == 0)
            return fail(Code::deadline_exceeded, "the confined child took too long");
        const ssize_t got = ::read(socket, at, size);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno("read", "the confined child");
        if (got == 0) return false;
        at += got;
        size -= static_cast<std::size_t>(got);
    }
    return true;
}

// v2: the first birth names its successor and ends.
Result<sys::Pidfd> await_successor(const sys::Pidfd& first, int meeting, sys::Deadline deadline)
{
    pid_t successor = -1;
    const bool named = TRY(read_exactly(meeting, &successor, sizeof successor, deadline));
    if (!TRY(first.wait_exit(deadline)))
        return fail(Code::deadline_exceeded, "the launching child did not leave its cgroup");
    if (!named) return fail(Code::unavailable, "the launching child failed in its first cgroup");
    // Our child too (CLONE_PARENT), and not reaped: the number is its own.
    return sys::Pidfd::open(successor);
}

}  // namespace

Result<Box> Box::start(const BoxSpec& spec, const BoxOrder& order, sys::Deadline deadline)
{
    sys::SocketPair meeting = TRY(sys::socket_pair(sys::SocketType::stream));
    const bool twice = order.control_dir >= 0;
    sys::CloneOptions options;
    options.flags = twice ? 0 : birth_flags(spec.own);
    options.cgroup_dir = order.top_dir;
    auto child = TRY_WITH(sys::clone_process(options), "start the confined child");
    if (child.pid == 0) {
        sys::close_number(meeting.first.get());
        if (twice) be_born_again(spec, order, meeting.second.get(), birth_flags(spec.own));
        live_in_box(spec, order, meeting.second.get());
    }
    meeting.second.reset();
    sys::Pidfd process(std::move(child.pidfd), child.pid);
    if (twice) {
        auto successor = await_successor(process, meeting.first.get(), deadline);
        if (!successor) {
            static_cast<void>(process.send_signal(SIGKILL));
            static_cast<void>(process.wait_exit(sys::Deadline::after(kDying)));
            return fail(std::move(successor).error());
        }
        process = std::move(*successor);
    }
    return Box(std::move(process), std::move(meeting.first), spec);
}

Box::~Box()
{
    if (meeting_.valid()) end();
}

void Box::end()
{
    meeting_.reset();
    // Reported by whoever waits: here there is nobody to tell.
    static_cast<void>(process_.send_signal(SIGKILL));
    static_cast<void>(process_.wait_exit(sys::Deadline::after(kDying)));
}

Status Box::write_maps() const
{
    const sys::ProcDir proc = TRY(sys::ProcDir::open(process_.pid()));
    TRY_VOID(sys::write_control_at(proc.fd(), "gid_map", sys::format_id_map(gids_)));
    return sys::write_control_at(proc.fd(), "uid_map", sys::format_id_map(uids_));
}

Result<sys::Pidfd> Box::finish(sys::Deadline deadline) &&
{
    const auto attempt = [&]() -> Status {
        char word = 0;
        if (!TRY(read_exactly(meeting_.get(), &word, 1, deadline)) || word != kUnshared)
            return fail(Code::unavailable, "the sandbox's first process failed");
        if (maps_) TRY_WITH(write_maps(), "write the id maps");
        return sys::write_all(meeting_.get(), std::string_view(&kBegin, 1));
    };
    if (auto done = attempt(); !done) {
        end();
        return fail(std::move(done).error());
    }
    meeting_.reset();
    return std::move(process_);
}

}  // namespace sandbox::confine
