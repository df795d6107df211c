// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "wire/machine.hpp"
#include "wire/messages.hpp"

// What passes between the shim and sandbox-init besides the ports: the bootstrap record and the
// SEQPACKET channel on which connected streams are handed in.
namespace sandbox::wire {

// SEQPACKET channel: one message a packet, a packet is the type byte and the payload. Packets are
// kept whole and in order by the kernel, so neither side can get out of step.

// init -> shim, once, when PID 1 is able to take streams.
struct InitUp {
    static constexpr std::uint8_t kType = 0xD0;
    std::uint16_t version = kProtocolVersion;
    // 1, except in tests.
    std::uint32_t pid = 0;  // as seen inside
    bool operator==(const InitUp&) const = default;
};

enum class LeafKind : std::uint8_t {
    none = 0,      // the session stays where PID 1 is
    v1_tasks = 1,  // open `tasks` files, one a hierarchy: the child writes 0 to each
    v2_dir = 2,    // an open cgroup directory for CLONE_INTO_CGROUP
};

// shim -> init. Descriptors with it (SCM_RIGHTS, unix(7)), in order: the connected stream, then
// leaf_count leaf fds. PID 1 owns them from then on, and closes them in every case.
struct Pass {
    static constexpr std::uint8_t kType = 0xD1;
    // A Port of those that take streams.
    std::uint32_t port = 0;
    std::string session;  // 64; empty for ports that run no session
    LeafKind leaf = LeafKind::none;
    std::uint8_t leaf_count = 0;  // none: 0; v1_tasks: 1 to 16; v2_dir: 1
    bool operator==(const Pass&) const = default;
};

// init -> shim: the stream was closed unread.
struct PassRefused {
    static constexpr std::uint8_t kType = 0xD2;
    std::string session;     // 64
    std::uint16_t code = 0;  // a WireError
    bool operator==(const PassRefused&) const = default;
};

// init -> shim: diagnostics for the operator. Untrusted text: a workload may have taken PID 1 over.
struct InitLog {
    static constexpr std::uint8_t kType = 0xD3;
    std::string text;  // 1024
    bool operator==(const InitLog&) const = default;
};

// init -> shim, once a session: its child was forked. What the audit log is told of a session whose
// OPEN the shim never sees.
struct SessionOpened {
    static constexpr std::uint8_t kType = 0xD4;
    std::string session;  // 64
    std::uint32_t pid = 0;  // as seen inside
    SessionKind kind = SessionKind::exec;
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
    Digest argv_digest{};  // SHA-256 of the arguments, each with the NUL that ends it
    bool operator==(const SessionOpened&) const = default;
};

// init -> shim, once a session that was passed: its leader is gone, or it never had one. What is
// left in its leaf is the shim's to end.
struct SessionEnded {
    static constexpr std::uint8_t kType = 0xD5;
    std::string session;  // 64
    ExitOutcome outcome = ExitOutcome::exited;
    std::int32_t value = 0;  // as in EXIT
    bool operator==(const SessionEnded&) const = default;
};

// Said by our own end of a guest's link, never by a guest: it broke the protocol and is closed.
struct GuestFaulty {
    static constexpr std::uint8_t kType = 0xD6;
    std::uint16_t code = 0;  // a WireError
    std::string detail;  // 256; which rule
    bool operator==(const GuestFaulty&) const = default;
};

// What a guest says of itself before INIT_UP, in as many packets as it takes. Nothing is decided by
// it; the audit log calls it guest-reported.
struct GuestReport {
    static constexpr std::uint8_t kType = 0xD7;
    std::vector<std::pair<std::string, std::string>> items;  // 64; name 64, observed 512
    bool operator==(const GuestReport&) const = default;
};

using InitMessage = std::variant<InitUp, Pass, PassRefused, InitLog, SessionOpened, SessionEnded,
                                 GuestFaulty, GuestReport>;

// Bootstrap record: one frame in a sealed memfd, read once by PID 1.

// How PID 1 was started: in a kernel of its own, or in namespaces of the host.
enum class BootMode : std::uint8_t { microvm = 1, host_sandbox = 2 };
enum class BootChannel : std::uint8_t { inherited_fd = 1, virtio_serial = 2, vsock = 3 };

// Exactly these pairs: any uid with any gid would be more than the plan has.
struct PermittedId {
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
    bool operator==(const PermittedId&) const = default;
};
struct LandlockRule {
    std::string path;  // 4096; absolute
    // As in linux/landlock.h; handed to the kernel unread.
    std::uint64_t access = 0;  // LANDLOCK_ACCESS_FS_*
    bool operator==(const LandlockRule&) const = default;
};
struct LandlockPort {
    std::uint16_t port = 0;
    std::uint64_t access = 0;  // LANDLOCK_ACCESS_NET_*
    bool operator==(const LandlockPort&) const = default;
};
// One BPF instruction is 8 bytes (struct sock_filter); the kernel takes 4096 of them (BPF_MAXINSNS,
// linux/bpf_common.h).
inline constexpr std::size_t kMaxBpf = 32U << 10;

// Everything PID 1 must know and may not ask for later. No secrets: those come by PROVISION and
// SECRET. Sealed before PID 1 starts, so nobody can change it afterwards.
struct Bootstrap {
    static constexpr std::uint8_t kType = 0xE0;
    std::uint16_t version = kProtocolVersion;
    BootMode mode = BootMode::host_sandbox;
    BootChannel channel = BootChannel::inherited_fd;
    std::uint32_t channel_fd = 0;  // inherited_fd only; else 0
    std::string sandbox_id;  // 64
    std::string hostname;  // 63; empty leaves it alone
    std::uint16_t max_sessions = kMaxSessions;  // at least 1
    // Limits of every session; an OPEN outside is answered `refused`.
    std::vector<PermittedId> permitted_ids;  // 64
    std::vector<std::uint32_t> permitted_groups;  // 1024; supplementary groups, beside the gids
    std::uint64_t capabilities = 0;  // bounding set kept; bit n is capability n
    // Landlock; abi 0 means none, and then the rest is empty.
    std::uint32_t landlock_abi = 0;
    std::uint64_t landlock_handled_fs = 0;
    std::uint64_t landlock_handled_net = 0;  // granted by landlock_ports only
    std::uint64_t landlock_scoped = 0;  // ABI 6 and up
    std::vector<LandlockRule> landlock;  // 512
    std::vector<LandlockPort> landlock_ports;  // 64
    ByteVector bpf;  // kMaxBpf, whole instructions; the inner ring
    std::vector<EnvPair> env;  // 256; fixed part, OPEN.env is laid over it
    std::vector<Rlimit> rlimits;  // 16; of every session, OPEN.rlimits may only lower them
    std::uint32_t heartbeat_ms = kHeartbeatMs;  // quiet time on 5002 before HEARTBEAT
    std::uint32_t silent_ms = kSilentMs;  // quiet time of a session before SILENT; 0: never
    std::uint32_t stop_grace_ms = 0;  // POWEROFF: between TERM and KILL; 0: KILL at once
    bool operator==(const Bootstrap&) const = default;
};
using BootstrapMessage = std::variant<Bootstrap, Machine>;

}  // namespace sandbox::wire
