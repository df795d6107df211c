// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "wire/protocol.hpp"

// One struct a message of ports 5000 to 5005, fields in wire order. Ceilings of the fields stand
// beside them in bytes or items; encode and decode both hold them. Defaults are what a peer may
// leave out in meaning, never in bytes: every field travels. Equality is of values, for tests.
namespace sandbox::wire {

using Nonce = std::array<std::uint8_t, kNonceSize>;
using Id16 = std::array<std::uint8_t, 16>;
using Digest = std::array<std::uint8_t, 32>;  // SHA-256
// std::byte and not char: these are not text, and nothing may treat them so.
using ByteVector = std::vector<std::byte>;

// Empty messages differ only by type.
template <std::uint8_t Type>
struct EmptyMessage {
    static constexpr std::uint8_t kType = Type;
    bool operator==(const EmptyMessage&) const = default;
};

// Stream bytes: the whole payload, without a length of its own (the header has it).
template <std::uint8_t Type>
struct RawMessage {
    static constexpr std::uint8_t kType = Type;
    ByteVector bytes;
    bool operator==(const RawMessage&) const = default;
};

// Any port, both directions; the sender closes after it. `code` is a number, so that a newer peer's
// codes can be told, too.
struct ErrorMessage {
    static constexpr std::uint8_t kType = 0x7F;
    std::uint16_t code = 0;  // a WireError, 1 to 9
    std::string detail;  // 256; never a secret
    bool operator==(const ErrorMessage&) const = default;
};

// Port 5000, control: strictly request and reply.

// SERVICE_STATE and WELCOME. The numbers are of the wire.
enum class ServiceState : std::uint8_t {
    not_started = 0,
    starting = 1,
    running = 2,
    exited = 3,
    waiting_to_restart = 4,
};
enum class RotateKind : std::uint8_t {
    event_nonce = 1,
    egress_token = 2,
    service_token = 3,
    provider_key = 4,
};
enum class PoweroffReason : std::uint8_t { stop = 1, remove = 2, host_shutdown = 3 };

struct Hello {
    static constexpr std::uint8_t kType = 0x01;
    std::uint16_t version = kProtocolVersion;
    Id16 instance_id{};  // for logs; proves nothing
    std::uint64_t host_time_ns = 0;  // since the Unix epoch, UTC
    bool resume = false;
    bool operator==(const Hello&) const = default;
};
// The guest's answer; texts are its own and prove nothing.
struct Welcome {
    static constexpr std::uint8_t kType = 0x02;
    std::uint16_t version = kProtocolVersion;
    std::string agent_version;  // 64
    std::string kernel_release;  // 64
    bool provisioned = false;
    ServiceState service_state = ServiceState::not_started;
    bool operator==(const Welcome&) const = default;
};
struct ProviderKey {
    std::string binding;  // 64
    std::string env_name;  // 64
    std::string value;  // 256
    bool operator==(const ProviderKey&) const = default;
};
// Once, before READY. The nonces are of this start only.
struct Provision {
    static constexpr std::uint8_t kType = 0x03;
    Nonce event_nonce{};
    Nonce egress_token{};
    Nonce service_token{};
    std::string hostname;  // 63
    // Of the host, nanoseconds since 1970 UTC; for a guest that has a clock of its own.
    std::uint64_t time_ns = 0;
    bool first_boot = false;
    std::vector<ProviderKey> provider_keys;  // 32
    bool operator==(const Provision&) const = default;
};
using Provisioned = EmptyMessage<0x04>;
// After it sessions may be opened; nothing of the workload runs before.
struct Ready {
    static constexpr std::uint8_t kType = 0x05;
    std::uint64_t policy_generation = 0;
    bool operator==(const Ready&) const = default;
};
using ReadyAck = EmptyMessage<0x06>;
// Only where the guest has its own clock.
struct TimeSet {
    static constexpr std::uint8_t kType = 0x07;
    std::uint64_t time_ns = 0;
    bool operator==(const TimeSet&) const = default;
};
struct TimeAck {
    static constexpr std::uint8_t kType = 0x08;
    std::int64_t offset_ns = 0;  // guest minus host before the step
    bool operator==(const TimeAck&) const = default;
};
// Replaces one value while it runs.
struct Rotate {
    static constexpr std::uint8_t kType = 0x09;
    RotateKind kind = RotateKind::event_nonce;
    std::string binding;  // 64; empty unless kind is provider_key
    ByteVector value;  // 256
    bool operator==(const Rotate&) const = default;
};
struct Rotated {
    static constexpr std::uint8_t kType = 0x0A;
    RotateKind kind = RotateKind::event_nonce;
    bool operator==(const Rotated&) const = default;
};
using StatsRequest = EmptyMessage<0x0B>;
// Of the whole guest, as it sees itself: a hint, no measure.
struct Stats {
    static constexpr std::uint8_t kType = 0x0C;
    std::uint64_t uptime_ms = 0;
    std::uint64_t mem_total_kib = 0;
    std::uint64_t mem_available_kib = 0;
    // Load average of one minute, in thousandths.
    std::uint32_t load1_milli = 0;
    std::uint16_t cpu_count = 0;
    std::uint64_t data_total_kib = 0;
    std::uint64_t data_used_kib = 0;
    std::uint32_t service_restarts = 0;
    bool operator==(const Stats&) const = default;
};
// TERM to everything, KILL after the grace of the bootstrap record; then PID 1 ends.
struct Poweroff {
    static constexpr std::uint8_t kType = 0x0D;
    PoweroffReason reason = PoweroffReason::stop;
    bool operator==(const Poweroff&) const = default;
};
using PoweroffAck = EmptyMessage<0x0E>;
using Fstrim = EmptyMessage<0x0F>;
using FstrimStarted = EmptyMessage<0x10>;

enum class SecretPlace : std::uint8_t {
    variable = 1,  // of the service's environment
    file = 2,  // mode 0400, in a folder of a tmpfs that is there
};
// After PROVISION and before READY, one a secret. The value is never in an error text.
struct Secret {
    static constexpr std::uint8_t kType = 0x11;
    SecretPlace place = SecretPlace::variable;
    std::uint32_t uid = 0;  // owner of the file: a permitted pair
    std::uint32_t gid = 0;
    std::string name;  // 4096; of the variable, without '=', or an absolute path
    ByteVector value;  // kMaxSecretValue; of a variable without NUL
    bool operator==(const Secret&) const = default;
};
using SecretKept = EmptyMessage<0x12>;

// To a session whose stream is its client's, where its processes are not the host's to signal.
struct SignalSession {
    static constexpr std::uint8_t kType = 0x13;
    std::string session;  // 64; the name it was passed with
    std::uint8_t signal = 0;  // 1 to 64
    bool operator==(const SignalSession&) const = default;
};
struct SessionSignaled {
    static constexpr std::uint8_t kType = 0x14;
    bool found = false;  // it is there and has not ended
    bool operator==(const SessionSignaled&) const = default;
};

using ControlMessage =
    std::variant<Hello, Welcome, Provision, Provisioned, Ready, ReadyAck, TimeSet, TimeAck, Rotate,
                 Rotated, StatsRequest, Stats, Poweroff, PoweroffAck, Fstrim, FstrimStarted, Secret,
                 SecretKept, SignalSession, SessionSignaled, ErrorMessage>;

// Port 5001, one session a connection.

// What runs behind a session.
enum class SessionKind : std::uint8_t {
    pty = 1,
    exec = 2,
    service = 3,  // the profile's [process], opened once after READY
    copy_in = 4,  // sandbox-init itself unpacks a tar stream; argv: path, most bytes, landing
    copy_out = 5,  // and packs one; argv: path, most bytes
};
enum class SessionStdio : std::uint8_t {
    frames = 0,  // bytes travel as STDIN, STDOUT and STDERR
    descriptors = 1,  // three descriptors travel with this frame by SCM_RIGHTS: in, out, err
};
// Decides what EXIT's value means.
enum class ExitOutcome : std::uint8_t {
    exited = 1,  // value is the exit code
    signaled = 2,  // value is the signal
    timed_out = 3,  // value is the signal that ended it
    failed_to_start = 4,  // value is the errno of execve or of the step before it
};

using EnvPair = std::pair<std::string, std::string>;

struct Rlimit {
    std::uint8_t resource = 0;  // RLIMIT_*, below 16
    std::uint64_t value = 0;  // soft and hard; all ones is RLIM_INFINITY
    bool operator==(const Rlimit&) const = default;
};

// The first frame of a session: everything about it. What exceeds the bootstrap record is
// `refused`.
struct Open {
    static constexpr std::uint8_t kType = 0x20;
    std::uint16_t version = kProtocolVersion;
    SessionKind kind = SessionKind::exec;
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
    std::vector<std::uint32_t> groups;  // 1024; supplementary, exactly these
    std::vector<std::string> argv;  // 1 to 65535 items of kMaxItem, no NUL
    std::vector<EnvPair> env;  // 65535; name 128 without '=' or NUL, value kMaxItem
    std::string cwd;  // 4096; absolute, or empty for the home directory
    std::string term;  // 64; PTY only
    std::uint16_t rows = 0;  // PTY only
    std::uint16_t cols = 0;  // PTY only
    std::uint32_t timeout_ms = 0;  // 0: none
    std::uint32_t umask = 0022;  // at most 0777
    std::vector<Rlimit> rlimits;  // 16
    bool gate = false;  // wait for GO between CONFINED and exec
    SessionStdio stdio = SessionStdio::frames;
    bool operator==(const Open&) const = default;
};
// After GO, once execve went through.
struct Started {
    static constexpr std::uint8_t kType = 0x21;
    // As seen inside.
    std::uint32_t pid = 0;
    bool operator==(const Started&) const = default;
};
using Stdin = RawMessage<0x22>;
using StdinEof = EmptyMessage<0x23>;
using Stdout = RawMessage<0x24>;
using Stderr = RawMessage<0x25>;
struct Resize {
    static constexpr std::uint8_t kType = 0x26;
    std::uint16_t rows = 0;
    std::uint16_t cols = 0;
    bool operator==(const Resize&) const = default;
};
// To the session's process group.
struct Signal {
    static constexpr std::uint8_t kType = 0x27;
    std::uint8_t signal = 0;  // 1 to 64; another value is `refused`
    bool operator==(const Signal&) const = default;
};
// A hint that nothing came for so long; again after each such span.
struct Silent {
    static constexpr std::uint8_t kType = 0x28;
    std::uint32_t silent_ms = 0;
    bool operator==(const Silent&) const = default;
};
// The last frame. See ExitOutcome for `value`; a hostile guest may send any number.
struct Exit {
    static constexpr std::uint8_t kType = 0x29;
    ExitOutcome outcome = ExitOutcome::exited;
    std::int32_t value = 0;
    bool operator==(const Exit&) const = default;
};
// What a kernel can have said. The codec carries any value; who writes one down asks this first: it
// comes from inside, and one that cannot be would spoil ledger and audit for everybody.
constexpr bool is_exit_value(ExitOutcome outcome, std::int32_t value) noexcept
{
    switch (outcome) {
    case ExitOutcome::exited: return value >= 0 && value <= 255;  // wait(2): eight bits
    case ExitOutcome::signaled: return value >= 1 && value <= 64;  // signal(7): SIGRTMAX
    case ExitOutcome::timed_out: return value >= 0 && value <= 64;  // 0: it ended by itself
    case ExitOutcome::failed_to_start:
        return value >= 0 && value <= 4095;  // MAX_ERRNO, linux/err.h
    }
    return false;
}

struct CapabilitySets {  // bit n is capability n
    std::uint64_t inheritable = 0;
    std::uint64_t permitted = 0;
    std::uint64_t effective = 0;
    std::uint64_t bounding = 0;
    std::uint64_t ambient = 0;
    bool operator==(const CapabilitySets&) const = default;
};
// What the session child reads of itself from the kernel after dropping, before exec.
struct Confined {
    static constexpr std::uint8_t kType = 0x2A;
    std::uint32_t pid = 0;  // as seen inside
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
    std::vector<std::uint32_t> groups;  // 1024
    CapabilitySets caps;
    bool no_new_privs = false;
    std::uint8_t seccomp_mode = 0;  // /proc/self/status Seccomp
    std::uint32_t seccomp_filters = 0;  // /proc/self/status Seccomp_filters
    std::uint32_t landlock_abi = 0;  // 0: not applied
    std::vector<std::uint32_t> open_fds;  // 256
    bool operator==(const Confined&) const = default;
};
// Only to a session with `gate`: the last moment at which nothing of the workload has run.
using Go = EmptyMessage<0x2B>;
// Nobody reads this output any more: the program's next write to it fails as one to a pipe does.
struct CloseOutput {
    static constexpr std::uint8_t kType = 0x2C;
    std::uint8_t output = 1;  // 1 standard output, 2 standard error
    bool operator==(const CloseOutput&) const = default;
};

using SessionMessage = std::variant<Open, Started, Stdin, StdinEof, Stdout, Stderr, Resize, Signal,
                                    Silent, Exit, Confined, Go, CloseOutput, ErrorMessage>;

// Port 5002, events and heartbeat.

// What a guest tells unasked; counted and shown, nothing is decided by it.
enum class GuestEvent : std::uint8_t {
    data_disk_formatted = 1,
    data_disk_mounted = 2,
    data_disk_above_90_percent = 3,
    oom_kill = 4,
    clock_stepped = 5,
    fstrim_done = 6,  // value: trimmed bytes
    network_up = 7,
    network_down = 8,
};

// The shape of every guest-opened first frame.
template <std::uint8_t Type>
struct AuthMessage {
    static constexpr std::uint8_t kType = Type;
    std::uint16_t version = kProtocolVersion;
    Nonce nonce{};
    bool operator==(const AuthMessage&) const = default;
};

using EventAuth = AuthMessage<0x40>;
struct Heartbeat {
    static constexpr std::uint8_t kType = 0x41;
    // Counts all events of this guest's start, so that the host sees a gap.
    std::uint64_t seq = 0;
    std::uint64_t uptime_ms = 0;
    bool operator==(const Heartbeat&) const = default;
};
struct ServiceStateEvent {
    static constexpr std::uint8_t kType = 0x42;
    std::uint64_t seq = 0;
    ServiceState state = ServiceState::starting;
    std::int32_t exit = 0;
    std::uint32_t restarts = 0;
    bool operator==(const ServiceStateEvent&) const = default;
};
struct GuestStateEvent {
    static constexpr std::uint8_t kType = 0x43;
    std::uint64_t seq = 0;
    GuestEvent kind = GuestEvent::data_disk_formatted;
    std::uint64_t value = 0;
    bool operator==(const GuestStateEvent&) const = default;
};
using EventMessage =
    std::variant<EventAuth, Heartbeat, ServiceStateEvent, GuestStateEvent, ErrorMessage>;

// Ports 5003, 5004 and 5005.

using NetAuth = AuthMessage<0x60>;  // nonce: the egress token
struct NetReady {
    static constexpr std::uint8_t kType = 0x61;
    std::uint64_t policy_generation = 0;
    bool operator==(const NetReady&) const = default;
};
using Packet = RawMessage<0x62>;
using NetworkMessage = std::variant<NetAuth, NetReady, Packet, ErrorMessage>;

struct BridgeOpen {
    static constexpr std::uint8_t kType = 0x80;
    std::uint16_t version = kProtocolVersion;
    std::uint16_t port = 0;  // on the guest's loopback; never 0
    bool operator==(const BridgeOpen&) const = default;
};
using BridgeReady = EmptyMessage<0x81>;
using BridgeMessage = std::variant<BridgeOpen, BridgeReady, ErrorMessage>;

using AgentAuth = AuthMessage<0xC0>;  // nonce: the egress token
using AgentReady = EmptyMessage<0xC1>;
using AgentMessage = std::variant<AgentAuth, AgentReady, ErrorMessage>;

}  // namespace sandbox::wire
