// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

// The library's versions of these two print what happened to a stream that PID 1 does not have, and
// bring a demangler and stdio (45 KiB) with them. The linker prefers ours.
namespace __gnu_cxx {

[[noreturn]] void __verbose_terminate_handler();
void __verbose_terminate_handler() { std::abort(); }

}  // namespace __gnu_cxx

#ifdef _GLIBCXX_ASSERTIONS
namespace std {

void __glibcxx_assert_fail(const char* /*file*/, int /*line*/, const char* /*function*/,
                           const char* /*condition*/) noexcept
{
    std::abort();
}

}  // namespace std
#endif
