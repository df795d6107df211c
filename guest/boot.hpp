// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.hpp"
#include "sys/fd.hpp"
#include "wire/init.hpp"

namespace sandbox::guest {

// The bootstrap record of the inherited, sealed memfd `fd`; the descriptor is closed in every case.
// Code::corrupt when it is not sealed (somebody else could still change it) or does not decode.
[[nodiscard]] Result<wire::Bootstrap> read_bootstrap(int fd);

// The shim's channel, taken over, closed on exec and non-blocking. unavailable: another kind
// of channel; invalid_argument: no SEQPACKET socket. Once: it closes what the number stands
// for.
[[nodiscard]] Result<sys::UniqueFd> adopt_channel(const wire::Bootstrap& boot);

}  // namespace sandbox::guest
