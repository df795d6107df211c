// SPDX-License-Identifier: Apache-2.0
#include "supervisor/console_relay.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "sys/file.hpp"

namespace sandbox::supervisor {

namespace {

// An upper bound for one call; a pipe holds 64 KiB unless somebody enlarged it.
constexpr std::size_t kMostSpliced = 1U << 20;
constexpr std::size_t kBuffer = 64U << 10;
// What a pipe or terminal that said POLLOUT takes without blocking us: PIPE_BUF, pipe(7).
constexpr std::size_t kSafeWrite = 4096;
constexpr int kMostRounds = 16;  // of one step: others want their turn

mode_t type_of(int fd)
{
    struct stat status{};
    return fstat(fd, &status) == 0 ? (status.st_mode & S_IFMT) : 0;
}

bool is_ready(int fd, short events)
{
    pollfd look{fd, events, 0};
    return poll(&look, 1, 0) > 0;
}

}  // namespace

// Asked once: a descriptor does not change its kind.
Relay::Relay(int from, int to) : from_(from), to_(to), from_pipe_(type_of(from) == S_IFIFO)
{
    const mode_t sink = type_of(to);
    if (sink == S_IFIFO) sink_ = Sink::pipe;
    if (sink == S_IFSOCK) sink_ = Sink::socket;
    if (sink == S_IFCHR && isatty(to) == 1) sink_ = Sink::terminal;
    // A socket or terminal of the caller's may be blocking, and splice has no way to ask it not to.
    splicing_ = sink_ == Sink::pipe || sink_ == Sink::other;
}

pollfd Relay::wait() const
{
    switch (need_) {
    case Need::source: return {from_, POLLIN, 0};
    case Need::sink: return {to_, POLLOUT, 0};
    case Need::nothing: break;
    }
    return {-1, 0, 0};
}

// EAGAIN does not say which side has to be waited for.
void Relay::blocked() { need_ = is_ready(to_, POLLOUT) ? Need::source : Need::sink; }

void Relay::step()
{
    // One bound for both ways, so that a fast pair cannot starve the other direction.
    for (int round = 0; round < kMostRounds && need_ != Need::nothing; ++round) {
        if (splicing_) {
            if (!splice_once()) return;
        } else {
            // One piece a turn: copying may sanitise, and is for slow sinks.
            copy_once();
            return;
        }
    }
}

// True: more may be had at once.
bool Relay::splice_once()
{
    const ssize_t count = splice(from_, nullptr, to_, nullptr, kMostSpliced,
                                 SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (count > 0) {
        need_ = Need::source;
        return from_pipe_;
    }
    // End of input, splice(2).
    if (count == 0) {
        need_ = Need::nothing;
    } else if (errno == EAGAIN) {
        blocked();
    } else if (errno == EINVAL) {
        // Copying can do what splice refuses; nothing was moved by the call that failed.
        splicing_ = false;  // a terminal, or a file opened for appending
        return is_ready(from_, POLLIN);
    } else if (errno != EINTR) {
        need_ = Need::nothing;
    }
    return false;
}

void Relay::copy_once()
{
    if (held_.empty()) {
        held_.resize(kBuffer);
        const ssize_t count = read(from_, held_.data(), held_.size());
        held_.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
        if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
        if (count <= 0) {
            // An escape sequence cut off by the end would otherwise be swallowed with what it
            // hides.
            if (sink_ == Sink::terminal) static_cast<void>(sys::write_all(to_, safe_.finish()));
            need_ = Need::nothing;
            return;
        }
        // Only where a terminal reads: a file or pipe gets the bytes as they are.
        if (sink_ == Sink::terminal) held_ = safe_.feed(held_);
    }
    while (!held_.empty()) {
        if (!write_held()) return;
    }
    need_ = Need::source;
}

bool Relay::write_held()
{
    ssize_t count = 0;
    if (sink_ == Sink::socket) {
        // MSG_DONTWAIT works on a blocking socket of the caller's; O_NONBLOCK would change it for
        // everyone who shares it.
        count = send(to_, held_.data(), held_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    } else {
        if (!is_ready(to_, POLLOUT)) {
            need_ = Need::sink;
            return false;
        }
        count = write(to_, held_.data(), std::min(held_.size(), kSafeWrite));
    }
    if (count >= 0) {
        held_.erase(0, static_cast<std::size_t>(count));
        return true;
    }
    need_ = errno == EAGAIN || errno == EINTR ? Need::sink : Need::nothing;
    return false;
}

}  // namespace sandbox::supervisor
