// SPDX-License-Identifier: Apache-2.0
#include "sys/locked.hpp"

#include <sys/mman.h>

#include <cstring>
#include <utility>

namespace sandbox::sys {

Result<LockedMemory> LockedMemory::make(std::size_t size)
{
    LockedMemory memory;
    if (size == 0) return memory;
    void* pages = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return fail_errno("mmap", "memory for secrets");
    memory.begin_ = static_cast<std::byte*>(pages);
    memory.size_ = size;
    // Also refused above RLIMIT_MEMLOCK: without the lock the pages could reach swap, and nothing
    // is kept.
    if (::mlock(pages, size) != 0) return fail_errno("mlock", "memory for secrets");
    // MADV_DONTDUMP: Linux 3.4. A core file would be a copy on the disk.
    if (::madvise(pages, size, MADV_DONTDUMP) != 0) return fail_errno("madvise", "DONTDUMP");
    TRY_VOID(memory.let(Children::see_nothing));
    return memory;
}

LockedMemory::LockedMemory(LockedMemory&& other) noexcept
    : begin_(std::exchange(other.begin_, nullptr)), size_(std::exchange(other.size_, 0))
{
}

LockedMemory& LockedMemory::operator=(LockedMemory&& other) noexcept
{
    std::swap(begin_, other.begin_);
    std::swap(size_, other.size_);
    return *this;
}

LockedMemory::~LockedMemory()
{
    if (begin_ == nullptr) return;
    // explicit_bzero(3): a plain memset of memory that is given back may be left out by the
    // compiler.
    ::explicit_bzero(begin_, size_);
    ::munmap(begin_, size_);
}

Status LockedMemory::let(Children children) noexcept
{
    if (empty()) return {};
    // WIPEONFORK: Linux 4.14. A fork's copy would be a second place to wipe.
    const int advice = children == Children::see_it ? MADV_KEEPONFORK : MADV_WIPEONFORK;
    if (::madvise(begin_, size_, advice) != 0) return fail_errno("madvise", "WIPEONFORK");
    return {};
}

}  // namespace sandbox::sys
