// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "ledger/records.hpp"

// What passes between a shim and its clients over RUN/ID/shim.sock (SEQPACKET: one JSON object a
// packet) and over the socket pair of the supervisor that launched it. A shim outlives the binary
// that made it, so both sides say their generation first and the lower one wins.
namespace sandbox::shim {

inline constexpr const char* kSocketName = "shim.sock";
inline constexpr int kGeneration = 1;
inline constexpr std::size_t kMostPacketBytes = 64U << 10;

// First packet of every connection, from the shim.
struct Greeting {
    int generation = kGeneration;
    std::vector<std::string> capabilities;  // ops it understands
    std::string id;
    bool operator==(const Greeting&) const = default;
};

// To the shim.
struct SignalRequest {
    int signal = 0;
    bool operator==(const SignalRequest&) const = default;
};
struct StopRequest {
    std::uint64_t timeout_ms = 0;
    bool operator==(const StopRequest&) const = default;
};
struct WaitRequest {
    bool operator==(const WaitRequest&) const = default;
};
using Request = std::variant<SignalRequest, StopRequest, WaitRequest>;

// From the shim.
struct Accepted {
    bool operator==(const Accepted&) const = default;
};
struct Rejected {
    std::string why;
    bool operator==(const Rejected&) const = default;
};
struct Running {  // the gate is open
    std::int32_t pid = 0;  // the workload's, on the host; 0 when idle
    bool operator==(const Running&) const = default;
};
struct Failed {  // the launch was refused or failed; nothing of the workload has run
    std::string step;
    std::string why;
    bool operator==(const Failed&) const = default;
};
struct Ended {
    ledger::Exit exit;
    std::string why;  // why it could not be executed, else empty
    bool operator==(const Ended&) const = default;
};
using Reply = std::variant<Greeting, Accepted, Rejected, Running, Failed, Ended>;

[[nodiscard]] Result<std::string> encode(const Request& request);
[[nodiscard]] Result<std::string> encode(const Reply& reply);
// Strict: an op or member that is not understood refuses the packet.
[[nodiscard]] Result<Request> decode_control_request(std::string_view packet);
[[nodiscard]] Result<Reply> decode_control_reply(std::string_view packet);

}  // namespace sandbox::shim
