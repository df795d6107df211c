// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "wire/wire.hpp"

namespace sandbox::guest {

// Above this nothing more is read for a connection until its peer drains. 256 sessions of a hostile
// workload that nobody reads stay below PID 1's own memory limit.
inline constexpr std::size_t kHighWater = 32U << 10;
// Of one read; half of what a pipe holds (64 KiB, pipe(7)).
inline constexpr std::size_t kChunk = 32U << 10;

// Bytes on their way to one descriptor, in order. Bounded by its users (kHighWater), not by itself.
class Outbox {
public:
    enum class Flushed { all, blocked, broken };

    bool empty() const noexcept { return size() == 0; }
    std::size_t size() const noexcept { return bytes_.size() - sent_; }
    void append(std::span<const std::byte> bytes);
    std::span<const std::byte> front() const noexcept
    {
        return std::span<const std::byte>(bytes_).subspan(sent_);
    }
    void take(std::size_t count) noexcept;
    // A message that cannot be encoded is a bug of ours and never comes from a peer: dropped.
    template <class M>
    void send(const M& message)
    {
        if (const auto frame = wire::encode(message)) append(*frame);
    }
    // blocked: the rest is kept. broken: the peer is gone; what is left is of no use. Never waits.
    Flushed flush_to_socket(int fd) noexcept;
    Flushed flush_to_pipe(int fd) noexcept;
    void clear() noexcept;

private:
    template <class Write>
    Flushed flush(Write write) noexcept;

    std::vector<std::byte> bytes_;
    std::size_t sent_ = 0;
};

}  // namespace sandbox::guest
