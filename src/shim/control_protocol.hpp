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
// that made it, so both sides say their generation first and the lower one wins. Both sides are of
// one trust: root, or the user whose sandboxes they are.
namespace sandbox::shim {

inline constexpr const char* kSocketName = "shim.sock";
inline constexpr int kGeneration = 1;
// One packet: far below what a unix socket takes by default (net.core.wmem_default, 208 KiB).
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
// Stop signal, and after the time-out SIGKILL; accepted at once, Ended follows.
struct StopRequest {
    std::uint64_t timeout_ms = 0;
    bool operator==(const StopRequest&) const = default;
};
// Answered by Ended when the present generation ends; more than one may wait.
struct WaitRequest {
    bool operator==(const WaitRequest&) const = default;
};
// Refused unless `generation` is the present one: a pause meant for a run that has ended must not
// hit the next.
struct PauseRequest {
    std::uint32_t generation = 0;
    bool operator==(const PauseRequest&) const = default;
};
struct ResumeRequest {
    std::uint32_t generation = 0;
    bool operator==(const ResumeRequest&) const = default;
};
struct TouchRequest {  // puts off idle_timeout
    bool operator==(const TouchRequest&) const = default;
};
// Live keys of another plan: `file` is a name in the sandbox's state folder, written by whoever
// asks.
struct UpdateRequest {
    std::string file;
    std::string digest;  // of the plan in it
    bool operator==(const UpdateRequest&) const = default;
};
// A sealed memfd with one OPEN frame comes with it. A terminal is made by the shim; otherwise the
// output goes to a log of the session's own. Answered by SessionOpen once the program runs, by
// Ended when it cannot be executed.
struct OpenSession {
    bool terminal = false;
    bool attach = false;  // terminal only: a stream comes back with the answer
    std::uint16_t rows = 0;
    std::uint16_t cols = 0;
    bool operator==(const OpenSession&) const = default;
};
// Answered by SessionOpen with a stream of port 5001 frames. Of a session without a terminal only
// EXIT comes, once its log is complete.
struct AttachSession {
    std::string session;  // "s1" is the profile's process
    std::int64_t from = -1;  // terminal: first byte wanted; -1: where the last attachment ended
    std::uint16_t rows = 0;  // 0: left as it is
    std::uint16_t cols = 0;
    bool operator==(const AttachSession&) const = default;
};
struct ListSessions {
    std::uint32_t after = 0;  // number of the last one known: a packet holds only so many
    bool operator==(const ListSessions&) const = default;
};
struct SignalSession {
    std::string session;
    int signal = 0;
    bool operator==(const SignalSession&) const = default;
};
using Request =
    std::variant<SignalRequest, StopRequest, WaitRequest, PauseRequest, ResumeRequest, TouchRequest,
                 UpdateRequest, OpenSession, AttachSession, ListSessions, SignalSession>;

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
// `step` is a word for programs (where the launch stood), `why` a sentence for people.
struct Failed {  // the launch was refused or failed; nothing of the workload has run
    std::string step;
    std::string why;
    bool operator==(const Failed&) const = default;
};
// The last packet of a conversation that waited: the shim hangs up after it.
struct Ended {
    ledger::Exit exit;
    std::string why;  // why it could not be executed, else empty
    bool operator==(const Ended&) const = default;
};
struct SessionOpen {
    std::string session;
    bool terminal = false;
    std::uint64_t offset = 0;  // of the first byte that the stream will carry
    std::string logs;  // folder of the records of a session without a terminal, else empty
    bool operator==(const SessionOpen&) const = default;
};
struct SessionRow {
    std::uint32_t number = 0;
    std::vector<std::string> argv;  // shortened where it is long
    bool terminal = false;
    bool attached = false;
    std::int32_t pid = 0;  // on the host; 0 once ended
    std::string started;  // RFC 3339
    std::uint64_t bytes = 0;  // of terminal output so far
    std::optional<ledger::Exit> exit;
    bool operator==(const SessionRow&) const = default;
};
struct SessionList {
    std::vector<SessionRow> rows;
    bool more = false;
    bool operator==(const SessionList&) const = default;
};
using Reply =
    std::variant<Greeting, Accepted, Rejected, Running, Failed, Ended, SessionOpen, SessionList>;

// Bounds so that a full SessionList fits one packet: 32 rows of 8 arguments of 64 bytes, escaped.
inline constexpr std::size_t kMostRows = 32;  // of one SessionList
inline constexpr std::size_t kMostRowArguments = 8;  // and bytes of each
inline constexpr std::size_t kMostArgumentBytes = 64;

// resource_exhausted or invalid_argument for what cannot be said (bad UTF-8, too long).
[[nodiscard]] Result<std::string> encode(const Request& request);
[[nodiscard]] Result<std::string> encode(const Reply& reply);
// Strict: an op or member that is not understood refuses the packet.
[[nodiscard]] Result<Request> decode_control_request(std::string_view packet);
[[nodiscard]] Result<Reply> decode_control_reply(std::string_view packet);

}  // namespace sandbox::shim
