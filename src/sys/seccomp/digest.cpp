// SPDX-License-Identifier: Apache-2.0
#include "sys/seccomp/digest.hpp"

#include "canon/canon.hpp"

namespace sandbox::sys::seccomp {

std::string rules_digest(Profile profile) { return canon::digest(canonical_text(profile)); }

std::string program_digest(std::span<const sock_filter> program)
{
    const auto bytes = std::as_bytes(program);
    canon::Sha256 hash;
    hash.update(bytes);
    // Byte for byte as the kernel gets it: same program, same digest, on one architecture.
    return canon::to_digest(hash.finish());
}

}  // namespace sandbox::sys::seccomp
