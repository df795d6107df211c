// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/result.hpp"

// Which file stands behind an artifact, exactly. Blocks for at most the deadline.
namespace sandbox::probe {

enum class Tool {
    crun,
    qemu,
    virtiofsd,
    own,
    data
};  // own: sandbox-init, sandbox-shim; data: kernels

struct ArtifactIdentity {
    std::string version;  // empty when the tool tells none
    std::string sha256;   // "sha256:…"
};

// In a disposable child: reads and hashes the file through one descriptor, then asks crun, qemu or
// virtiofsd for its version, crun from a sealed copy of the very bytes that were hashed. A program
// must be regular, executable, owned by root or us, and writable by nobody else.
[[nodiscard]] Result<ArtifactIdentity> identify(Tool tool, const std::string& path,
                                                std::chrono::milliseconds deadline);

// "crun version 1.8.1\n…" -> "1.8.1"; "QEMU emulator version 7.2.22 (Debian …" -> "7.2.22".
// Empty when the text is of another shape.
std::string parse_version(Tool tool, std::string_view output);

}  // namespace sandbox::probe
