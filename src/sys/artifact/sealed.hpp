// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "sys/fd.hpp"

namespace sandbox::sys {

// The bytes of an executable, read once, hashed while they were copied, and immutable since.
// Executing `fd` (fexecve, /proc/self/fd/N) runs exactly what `digest` says. Lives as long as `fd`;
// its pages count as memory of whoever made it.
struct SealedArtifact {
    UniqueFd fd;  // sealed memfd, CLOEXEC
    std::string digest;  // "sha256:" and 64 hex digits
    std::uint64_t size = 0;
    FileIdentity source;  // the file it was read from
};

// Ceiling for one artifact: a static runtime with debug information is below 64 MiB.
inline constexpr std::uint64_t kArtifactLimit = 256U << 20;

// Reads from `file` (already open, borrowed) from its start. An empty `expected` accepts any bytes;
// a mismatch is Code::conflict and names both digests; resource_exhausted above kArtifactLimit.
[[nodiscard]] Result<SealedArtifact> seal_artifact(int file, const std::string& name,
                                                   std::string_view expected = {});
// Opens, checks and seals. Blocks for the copy: about a millisecond for crun.
[[nodiscard]] Result<SealedArtifact> seal_executable(const std::string& path,
                                                     std::string_view expected = {});

// Regular, owned by root or by us, executable by its owner, writable by nobody else. Else
// Code::permission_denied (invalid_argument for another kind), with what was found.
[[nodiscard]] Status check_executable(int file, const std::string& name);
// Digest alone, for `config init` and re-checks. "sha256:" and 64 hex digits.
[[nodiscard]] Result<std::string> digest_file(int file);

}  // namespace sandbox::sys
