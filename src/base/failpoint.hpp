// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

// A named place where a crash-sweep build can be told to die. Release builds compile it to nothing,
// and a test proves that the marker string is not in them.
namespace sandbox {

#ifdef SANDBOX_FAILPOINTS

// SIGKILLs this process when the environment's SANDBOX_FAILPOINT equals `name`; with
// SANDBOX_FAILPOINT_LOG=FILE appends each name that is passed, so that a sweep can list them.
void failpoint(const char* name) noexcept;
// The point "group.step".
void failpoint(const char* group, std::string_view step) noexcept;

#else

inline void failpoint(const char* /*name*/) noexcept {}
inline void failpoint(const char* /*group*/, std::string_view /*step*/) noexcept {}

#endif

}  // namespace sandbox
