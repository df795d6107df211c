// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <new>

// PID 1 holds secrets on their way to where they belong. Whatever buffer they passed through, grown
// or dropped, is empty when it is freed; the price is a memset of what a small program frees.

void operator delete(void* block) noexcept
{
    if (block == nullptr) return;
    ::explicit_bzero(block, ::malloc_usable_size(block));
    std::free(block);
}

void operator delete(void* block, std::size_t /*size*/) noexcept { operator delete(block); }
void operator delete[](void* block) noexcept { operator delete(block); }
void operator delete[](void* block, std::size_t /*size*/) noexcept { operator delete(block); }
