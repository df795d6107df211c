// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sandbox::guest {

// The set of descriptors of one turn of the loop, built anew each turn: a descriptor that was
// closed meanwhile cannot stay behind and make PID 1 spin. A few hundred entries at most.
class Poller {
public:
    static constexpr std::size_t kNone = SIZE_MAX;

    void clear() noexcept
    {
        set_.clear();
        awake_ = false;
    }
    // The next wait() only looks: there is something to do that no descriptor shows.
    void wake() noexcept { awake_ = true; }
    // The index for ready(), valid in this turn. POLLHUP and POLLERR are reported whether asked or
    // not (poll(2)).
    std::size_t watch(int fd, short events)
    {
        set_.push_back({fd, events, 0});
        return set_.size() - 1;
    }
    // 0 for kNone, too: what was not watched is not ready.
    short ready(std::size_t index) const noexcept
    {
        return index < set_.size() ? set_[index].revents : short{0};
    }
    // Negative: no deadline. False on an error that is not an interruption.
    bool wait(int timeout_ms) noexcept;

private:
    std::vector<pollfd> set_;
    bool awake_ = false;
};

// Milliseconds of CLOCK_BOOTTIME; kNever is later than all.
inline constexpr std::int64_t kNever = INT64_MAX;
std::int64_t now_ms() noexcept;

}  // namespace sandbox::guest
