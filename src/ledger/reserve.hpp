// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"

// Room on the disk that is kept for ending things: what stops and removes must still be recorded
// where nothing new begins any more.
// In SQLite's VFS a write that finds the disk full takes from it (vfs.cpp).
namespace sandbox::ledger {

inline constexpr std::string_view kReserveName = "ledger.db-reserve";  // beside ledger.db

// Makes it, or fills up what was spent of it. `dir_fd` stays the caller's. Requires: called before
// anything new begins. resource_exhausted: the disk has no room for it, so nothing new may begin.
[[nodiscard]] Status keep_reserve(int dir_fd);

// Gives a piece of it (128 KiB) back to the file system, for a write that found the disk full.
// `path` is the file's, absolute. False: nothing is left to give.
bool spend_reserve(const std::string& path) noexcept;

}  // namespace sandbox::ledger
