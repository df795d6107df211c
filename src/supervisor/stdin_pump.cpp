// SPDX-License-Identifier: Apache-2.0
#include "supervisor/stdin_pump.hpp"

#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace sandbox::supervisor {

namespace {

constexpr std::size_t kChunk = 64U << 10;  // a pipe's default capacity, pipe(7)

}  // namespace

StdinPump::StdinPump(sys::UniqueFd pipe) : pipe_(std::move(pipe))
{
    if (!pipe_.valid()) return;
    // A workload that closed its input is no reason for us to die.
    // Of the whole process: sandboxctl owns it. A library call in a daemon never comes here.
    std::signal(SIGPIPE, SIG_IGN);
    static_cast<void>(sys::set_nonblocking(pipe_.get()));
}

int StdinPump::input() const noexcept
{
    return pipe_.valid() && held_.empty() && !at_end_ ? STDIN_FILENO : -1;
}

int StdinPump::output() const noexcept
{
    return pipe_.valid() && !held_.empty() ? pipe_.get() : -1;
}

void StdinPump::read_more()
{
    held_.resize(kChunk);
    // Called after POLLIN, so it does not wait; a terminal gives a line at a time.
    const ssize_t count = read(STDIN_FILENO, held_.data(), held_.size());
    held_.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) {
        at_end_ = true;
        // The workload reads its end of file from the closed pipe, not from us.
        pipe_.reset();
    }
}

void StdinPump::write_more()
{
    const ssize_t count = write(pipe_.get(), held_.data(), held_.size());
    if (count > 0)
        held_.erase(0, static_cast<std::size_t>(count));
    else if (count < 0 && errno != EINTR && errno != EAGAIN)
        // It closed its input, or is gone: what was typed has no reader any more.
        pipe_.reset();
}

}  // namespace sandbox::supervisor
