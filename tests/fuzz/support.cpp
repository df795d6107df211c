// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <new>

#include "fuzz.hpp"

namespace sandbox::fuzz {

namespace {

std::size_t total = 0;

// RFC 3629, by the table of Unicode 15 section 3.9 (3-7); 0 for anything else.
std::size_t character(std::string_view text, std::uint32_t& value)
{
    const auto at = [&](std::size_t i) -> std::uint32_t {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
    };
    const auto tail = [&](std::size_t i) { return (at(i) & 0xC0U) == 0x80U; };
    const std::uint32_t lead = at(0);
    value = lead;
    if (lead < 0x80) return 1;
    if (lead >= 0xC2 && lead <= 0xDF && tail(1)) {
        value = (lead & 0x1FU) << 6 | (at(1) & 0x3FU);
        return 2;
    }
    if ((lead & 0xF0U) == 0xE0 && tail(1) && tail(2)) {
        value = (lead & 0x0FU) << 12 | (at(1) & 0x3FU) << 6 | (at(2) & 0x3FU);
        return value >= 0x800 && (value < 0xD800 || value > 0xDFFF) ? 3 : 0;
    }
    if (lead >= 0xF0 && lead <= 0xF4 && tail(1) && tail(2) && tail(3)) {
        value = (lead & 0x07U) << 18 | (at(1) & 0x3FU) << 12 | (at(2) & 0x3FU) << 6 |
                (at(3) & 0x3FU);
        return value >= 0x10000 && value <= 0x10FFFF ? 4 : 0;
    }
    return 0;
}

// Every range that Unicode 15 lists as Cc, Bidi_Control or zero width.
bool is_hostile(std::uint32_t c)
{
    static constexpr std::array<std::array<std::uint32_t, 2>, 9> kRanges{{{0x00, 0x1F},
                                                                          {0x7F, 0x9F},
                                                                          {0x061C, 0x061C},
                                                                          {0x200B, 0x200F},
                                                                          {0x2028, 0x202E},
                                                                          {0x2060, 0x2064},
                                                                          {0x2066, 0x2069},
                                                                          {0xFEFF, 0xFEFF},
                                                                          {0xE0000, 0xE007F}}};
    return std::ranges::any_of(kRanges, [c](const auto& r) { return c >= r[0] && c <= r[1]; });
}

}  // namespace

std::size_t allocated() noexcept { return total; }

bool is_safe_text(std::string_view text, std::string_view also)
{
    while (!text.empty()) {
        std::uint32_t value = 0;
        const std::size_t length = character(text, value);
        if (length == 0) return false;
        const bool allowed = length == 1 && also.find(text.front()) != std::string_view::npos;
        if (is_hostile(value) && !allowed) return false;
        text.remove_prefix(length);
    }
    return true;
}

#ifndef SANDBOX_FUZZ_REPLAY
void broken(const char* file, int line, const char* what)
{
    std::fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    std::abort();
}
#endif

}  // namespace sandbox::fuzz

// Counting needs the whole family: the sanitizers compare how memory came and how it goes. gcc, where
// it inlines one side only, takes the pair for a mismatch.
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif
void* operator new(std::size_t size)
{
    sandbox::fuzz::total += size;
    if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
    throw std::bad_alloc();
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept
{
    sandbox::fuzz::total += size;
    return std::malloc(size == 0 ? 1 : size);
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new[](std::size_t size, const std::nothrow_t& tag) noexcept
{
    return operator new(size, tag);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
