// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "supervisor/service.hpp"
#include "supervisor/shim_client.hpp"

// The client's side of an attachment: docs/protocol.md, "Attachments". Requires as exec.hpp.
namespace sandbox::supervisor {

// `reply` is SessionOpen with `stream` valid, or Ended for a session that is over, with none.
struct SessionAnswer {
    std::variant<shim::SessionOpen, shim::Ended> reply;
    sys::UniqueFd stream;
};
// The shim's answer to OpenSession and AttachSession, waited for up to 30 s. Rejected becomes
// Code::conflict; deadline_exceeded, unavailable (the shim is gone) and corrupt are the others.
[[nodiscard]] Result<SessionAnswer> await_session(ShimConnection& shim);

// A terminal: until it ends, its client detaches, or one of them goes away. `offset` is that of the
// first byte of `stream`; `result` has the session's name. Left by its keys or by Steer::detach: no
// exit and status 0.
[[nodiscard]] Result<SessionResult> attend_terminal(sys::UniqueFd stream, const Console& console,
                                                    std::uint64_t offset, SessionResult result);

// A session whose output is in a log: delivers records from `from` on (nothing: what comes from now
// on) until it ends or is left. Both block; Code::unavailable when the shim goes away first.
// Positions are byte offsets of the raw stream, as in each record's `offset`.
struct LogPosition {
    std::optional<std::uint64_t> out;
    std::optional<std::uint64_t> err;
};
[[nodiscard]] Result<SessionResult> attend_log(sys::UniqueFd stream, const std::string& folder,
                                               const Console& console, LogPosition from,
                                               SessionResult result);

}  // namespace sandbox::supervisor
