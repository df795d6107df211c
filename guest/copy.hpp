// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "sys/archive.hpp"
#include "wire/wire.hpp"

// What a session child does instead of execve when it is there to copy: packs a tree of the
// sandbox to its standard output, or unpacks its standard input. It has the ids, limits and rings
// of any session, and needs no program of the image.
namespace sandbox::guest {

struct CopyJob {
    wire::SessionKind kind = wire::SessionKind::copy_out;
    std::string path;  // absolute
    sys::Landing landing = sys::Landing::named;
    tar::Limits limits;
};

// Whether a session of this kind runs Copy instead of a program.
bool copies(wire::SessionKind kind) noexcept;

// OPEN's arguments: the path, the most bytes in decimal, and for copy_in "named" or "content".
// WireError::refused for anything else. Pure.
[[nodiscard]] wire::Decoded<CopyJob> make_copy(const wire::Open& open);

// Runs in the session child, after the fork: it may block. One use.
class Copy {
public:
    // Resolves the path with openat2, which the inner filter knows nothing of. Requires: every
    // step of confinement but that filter is in force. What went wrong is said by run().
    explicit Copy(CopyJob job);
    // Exit code 0, or 1 after one line on standard error.
    int run();

private:
    [[nodiscard]] Status resolve();
    [[nodiscard]] Status transfer();

    CopyJob job_;
    sys::ArchiveSource source_;
    sys::ArchiveTarget target_;
    Status resolved_;  // last: its initialisation fills the two above
};

}  // namespace sandbox::guest
