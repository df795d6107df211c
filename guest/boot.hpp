// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.hpp"
#include "sys/fd.hpp"
#include "wire/init.hpp"

namespace sandbox::guest {

// The bootstrap record of the inherited, sealed memfd `fd`; the descriptor is closed. Code::corrupt
// when it is not sealed: somebody else could still change it.
[[nodiscard]] Result<wire::Bootstrap> read_bootstrap(int fd);

// The shim's channel, taken over and closed on exec.
[[nodiscard]] Result<sys::UniqueFd> adopt_channel(const wire::Bootstrap& boot);

}  // namespace sandbox::guest
