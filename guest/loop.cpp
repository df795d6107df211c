// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "guest/outbox.hpp"
#include "guest/poller.hpp"

namespace sandbox::guest {

bool Poller::wait(int timeout_ms) noexcept
{
    // poll(2) with no deadline for a negative one.
    if (::poll(set_.data(), set_.size(), awake_ ? 0 : timeout_ms) >= 0) return true;
    // Entries of an interrupted poll are not defined; nobody is ready then.
    for (pollfd& entry : set_) entry.revents = 0;
    return errno == EINTR;
}

std::int64_t now_ms() noexcept
{
    timespec now{};
    // BOOTTIME: a sandbox that slept with its host must not get its time back.
    ::clock_gettime(CLOCK_BOOTTIME, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

void Outbox::append(std::span<const std::byte> bytes)
{
    // Moves the rest to the front only when more was sent than is left: linear in total.
    if (sent_ > bytes_.size() / 2) {
        bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(sent_));
        sent_ = 0;
    }
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

void Outbox::take(std::size_t count) noexcept
{
    sent_ += count;
    if (sent_ >= bytes_.size()) clear();
}

void Outbox::clear() noexcept
{
    // The memory stays: a busy stream needs it again.
    bytes_.clear();
    sent_ = 0;
}

template <class Write>
Outbox::Flushed Outbox::flush(Write write) noexcept
{
    while (!empty()) {
        // As much as it takes; the rest waits for POLLOUT.
        const ssize_t count = write(bytes_.data() + sent_, size());
        if (count >= 0) {
            sent_ += static_cast<std::size_t>(count);
        } else if (errno == EAGAIN) {
            return Flushed::blocked;
        } else if (errno != EINTR) {
            return Flushed::broken;
        }
    }
    clear();
    return Flushed::all;
}

Outbox::Flushed Outbox::flush_to_socket(int fd) noexcept
{
    return flush([fd](const std::byte* bytes, std::size_t count) {
        // MSG_DONTWAIT although the descriptor is non-blocking: it may have been passed in by
        // somebody else.
        return ::send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    });
}

Outbox::Flushed Outbox::flush_to_pipe(int fd) noexcept
{
    // A pipe of ours: made non-blocking, and SIGPIPE is ignored.
    return flush(
        [fd](const std::byte* bytes, std::size_t count) { return ::write(fd, bytes, count); });
}

}  // namespace sandbox::guest
