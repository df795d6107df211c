// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "channel/frame_stream.hpp"
#include "driver/driver.hpp"
#include "driver/groups.hpp"
#include "plan/plan.hpp"
#include "sys/deadline.hpp"
#include "sys/fd.hpp"
#include "wire/wire.hpp"

// The shim's side of the conversation with sandbox-init: handing streams in, the handshake on the
// control port, and opening the service session up to its gate.
namespace sandbox::shim {

using ControlStream = channel::FrameStream<wire::ControlMessage>;
using SessionStream = channel::FrameStream<wire::SessionMessage>;

inline constexpr std::string_view kServiceSession = "s1";

// Makes a connected stream and hands its other end to sandbox-init over the SEQPACKET channel. The
// caller owns the near end; sandbox-init drops what it does not expect, which shows as EOF here.
[[nodiscard]] Result<sys::UniqueFd> open_port(int init_channel, wire::Port port);
// The same for a session, with the cgroup leaf it is to be born in.
[[nodiscard]] Result<sys::UniqueFd> open_session(int init_channel, plan::CgroupVersion version,
                                                 const driver::SessionLeaf& leaf);
// Hands in a stream that somebody else opened at the door; it is closed here in any case.
[[nodiscard]] Status pass_session(int init_channel, plan::CgroupVersion version,
                                  const driver::SessionLeaf& leaf, sys::UniqueFd stream);
[[nodiscard]] Status pass_port(int init_channel, std::uint32_t port, sys::UniqueFd stream);

// By how much a guest's clock may differ from ours once it was set.
inline constexpr std::chrono::milliseconds kClockTolerance{50};

// Sets the clock of a guest to ours, again until an answer came within kClockTolerance: the guest is
// behind by what lies between our look at the clock and its step, so by no more than the answer took.
// That time is returned: more than the tolerance when no answer came so fast before the deadline.
[[nodiscard]] Result<std::chrono::nanoseconds> set_clock(ControlStream& stream,
                                                         sys::Deadline deadline);

// HELLO to READY_ACK, deny first: nothing of the workload can start before READY. The nonces are
// made here and live in this process only. Secrets of the plan are given in between, from the
// operator's folder `secret_store`. Blocks up to the deadline. denied: a secret is missing or not
// to be trusted; corrupt: the guest answered otherwise; unavailable: it ended.
struct Handshake {
    wire::Welcome welcome;
    wire::Nonce event_nonce{};  // what port 5002 must open with
    std::vector<driver::Evidence> evidence;  // of each secret
};
[[nodiscard]] Result<Handshake> handshake(ControlStream& stream, const driver::Binding& binding,
                                          const plan::ExecutionPlan& plan,
                                          const std::string& secret_store, sys::Deadline deadline);

// Gives the guest another nonce for port 5002 and returns it: the next stream must open with that one,
// and no stream ever again with the old. On an error the guest may have either.
[[nodiscard]] Result<wire::Nonce> rotate_event_nonce(ControlStream& stream, sys::Deadline deadline);

// OPEN of the plan's process, gated, with descriptors: also what a health check starts from.
// internal: the plan names an rlimit that the kernel does not have.
[[nodiscard]] Result<wire::Open> describe_process(const plan::ProcessPlan& process);

// Sends OPEN for the plan's process with its three descriptors (borrowed) and waits for CONFINED:
// the child has dropped everything and stands before its gate. An Error means that it has not run.
[[nodiscard]] Result<wire::Confined> open_service(SessionStream& stream,
                                                  const plan::ProcessPlan& process,
                                                  std::array<int, 3> stdio, sys::Deadline deadline,
                                                  const std::string& term = {});

// After GO: STARTED, or why the program could not be executed.
struct StartFailure {
    int errnum = 0;
};
[[nodiscard]] Result<std::variant<wire::Started, StartFailure>> await_start(SessionStream& stream,
                                                                            sys::Deadline deadline);

}  // namespace sandbox::shim
