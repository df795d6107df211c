// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "wire/messages.hpp"

namespace sandbox::guest {

// SHA-256 (FIPS 180-4) of the arguments, each with the NUL that ends it: what the audit log keeps
// of them, so that an argument which is a secret does not get there. Our own few lines: libcrypto
// would be most of this program.
wire::Digest argv_digest(const std::vector<std::string>& argv) noexcept;

}  // namespace sandbox::guest
