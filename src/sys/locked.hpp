// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "base/result.hpp"

namespace sandbox::sys {

// Pages for what must not leave memory: locked (no swap), left out of core files, empty in every
// child, wiped before they are given back. Owned by one object; moves leave nothing behind. Root
// can still read them through /proc, and so can a debugger.
class LockedMemory {
public:
    LockedMemory() noexcept = default;
    // Code::resource_exhausted or permission_denied where the kernel does not lock (RLIMIT_MEMLOCK,
    // mlock(2)). Size 0 is an object without pages.
    [[nodiscard]] static Result<LockedMemory> make(std::size_t size);
    LockedMemory(LockedMemory&& other) noexcept;
    LockedMemory& operator=(LockedMemory&& other) noexcept;
    LockedMemory(const LockedMemory&) = delete;
    LockedMemory& operator=(const LockedMemory&) = delete;
    ~LockedMemory();

    std::span<std::byte> bytes() noexcept { return {begin_, size_}; }
    std::span<const std::byte> bytes() const noexcept { return {begin_, size_}; }
    bool empty() const noexcept { return size_ == 0; }

    enum class Children { see_nothing, see_it };
    // For the one child that is meant to have it: around its fork.
    [[nodiscard]] Status let(Children children) noexcept;

private:
    std::byte* begin_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace sandbox::sys
