// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sandbox::ledger {

// What the WAL file is filled up to at its first emptying, with zeros: commits then overwrite
// blocks the file already has, and a sync need not wait for the file system's own journal. A run
// writes some 30 frames of 4 KiB; this holds several.
inline constexpr std::int64_t kKeptWal = 512 << 10;
// A WAL that some rush made longer than this is really cut when it is emptied.
inline constexpr std::int64_t kLargestKeptWal = 1 << 20;

// The name under which SQLite finds our file layer, registered on the first call; nullptr when
// SQLite has no unix layer to build on. It differs from "unix" in four things: names are used as
// they are given, an emptied WAL keeps its length, a WAL that is already there is not announced to
// its folder again, and on a full disk a WAL grows into the reserve (reserve.hpp).
const char* registered_vfs();

}  // namespace sandbox::ledger
