// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <new>

// PID 1 holds secrets on their way to where they belong. Whatever buffer they passed through, grown
// or dropped, is empty when it is freed; the price is a memset of what a small program frees.

// One pair: what is freed by free() must have come from malloc(), whichever library is linked first
// (a sanitizer's, for one). A PID 1 without memory ends, as it would by an exception nobody catches.
void* operator new(std::size_t size)
{
    void* const block = std::malloc(size == 0 ? 1 : size);
    if (block == nullptr) std::abort();
    return block;
}

void* operator new[](std::size_t size) { return operator new(size); }

void operator delete(void* block) noexcept
{
    if (block == nullptr) return;
    ::explicit_bzero(block, ::malloc_usable_size(block));
    std::free(block);
}

void operator delete(void* block, std::size_t /*size*/) noexcept { operator delete(block); }
void operator delete[](void* block) noexcept { operator delete(block); }
void operator delete[](void* block, std::size_t /*size*/) noexcept { operator delete(block); }
