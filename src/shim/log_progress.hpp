// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/result.hpp"

namespace sandbox::shim {

// How far a log worker has come with one stream. Counted from the stream's first byte. `read` is
// written before `logged`, so their difference is what may be lost at most.
struct StreamProgress {
    std::atomic<std::uint64_t> read{0};    // taken out of the pipe
    std::atomic<std::uint64_t> logged{0};  // of those, in the log or given up on
};

// Of both streams, in memory that shim and worker share: what a killed worker had in its hands is
// known to whoever goes on. Owned by this process; a forked child sees the same pages.
class LogProgress {
public:
    using Streams = std::array<StreamProgress, 2>;  // stdout, stderr

    [[nodiscard]] static Result<LogProgress> make();
    LogProgress() = default;
    LogProgress(LogProgress&& other) noexcept;
    LogProgress& operator=(LogProgress&& other) noexcept;
    LogProgress(const LogProgress&) = delete;
    LogProgress& operator=(const LogProgress&) = delete;
    ~LogProgress();

    Streams& streams() const noexcept { return *streams_; }

private:
    explicit LogProgress(Streams* streams) : streams_(streams) {}
    Streams* streams_ = nullptr;
};

}  // namespace sandbox::shim
