// SPDX-License-Identifier: Apache-2.0
#include "shim/log_progress.hpp"

#include <sys/mman.h>

#include <new>
#include <utility>

namespace sandbox::shim {

// Both processes must see one counter, whatever library they use: no lock of the process' own.
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

Result<LogProgress> LogProgress::make()
{
    // Anonymous and shared: it survives a fork, reaches no disk, and goes with its last owner.
    void* memory = mmap(nullptr, sizeof(Streams), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return fail_errno("mmap");
    return LogProgress(new (memory) Streams());
}

LogProgress::LogProgress(LogProgress&& other) noexcept
    : streams_(std::exchange(other.streams_, nullptr))
{
}

LogProgress& LogProgress::operator=(LogProgress&& other) noexcept
{
    std::swap(streams_, other.streams_);
    return *this;
}

LogProgress::~LogProgress()
{
    if (streams_ != nullptr) munmap(streams_, sizeof(Streams));
}

}  // namespace sandbox::shim
