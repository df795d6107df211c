// SPDX-License-Identifier: Apache-2.0
#include "wire/init.hpp"

#include "wire/serialize.hpp"

namespace sandbox::wire {

// machine.cpp
template <class A>
void visit(A& a, In<A, Machine> m);

template <class A>
void visit(A& a, In<A, InitUp> m)
{
    a.version(m.version, kProtocolVersion);
    a.number("pid", m.pid);
}

namespace {

// Anything else is a PASS whose descriptors would be counted wrongly: a stream of one session could
// become another's leaf.
bool leaf_is_good(LeafKind leaf, std::uint8_t count) noexcept
{
    switch (leaf) {
    case LeafKind::none: return count == 0;
    // 16: as many hierarchies as cgroup v1 can have mounted in practice.
    case LeafKind::v1_tasks: return count >= 1 && count <= 16;
    case LeafKind::v2_dir: return count == 1;
    }
    return false;
}

}  // namespace

template <class A>
void visit(A& a, In<A, Pass> m)
{
    a.number("port", m.port);
    // The name is the shim's; it goes into paths of leaves and logs.
    a.text("session", m.session, 64, Text::c_string);
    a.tag("leaf", m.leaf, LeafKind::none, LeafKind::v2_dir);
    a.number("leaf_count", m.leaf_count);
    a.require(leaf_is_good(m.leaf, m.leaf_count), "leaf_count");
}

template <class A>
void visit(A& a, In<A, PassRefused> m)
{
    a.text("session", m.session, 64, Text::c_string);
    // A number and not a tag: for the log only.
    a.number("code", m.code);
}

template <class A>
void visit(A& a, In<A, InitLog> m)
{
    // Longer lines are cut by the sender.
    a.text("text", m.text, 1024);
}

template <class A>
void visit(A& a, In<A, SessionOpened> m)
{
    a.text("session", m.session, 64, Text::c_string);
    a.number("pid", m.pid);
    a.tag("kind", m.kind, SessionKind::pty, SessionKind::copy_out);
    a.number("uid", m.uid);
    a.number("gid", m.gid);
    a.array("argv_digest", m.argv_digest);
}

template <class A>
void visit(A& a, In<A, SessionEnded> m)
{
    a.text("session", m.session, 64, Text::c_string);
    a.tag("outcome", m.outcome, ExitOutcome::exited, ExitOutcome::failed_to_start);
    // As in EXIT.
    a.number("value", m.value);
}

template <class A>
void visit(A& a, In<A, GuestFaulty> m)
{
    a.number("code", m.code);
    a.text("detail", m.detail, 256);
}

template <class A>
void visit(A& a, In<A, GuestReport> m)
{
    a.list("items", m.items, 64, [](auto& archive, auto& item) {
        archive.text("items.name", item.first, 64);
        archive.text("items.observed", item.second, 512);
    });
}

template <class A>
void visit_landlock(A& a, In<A, Bootstrap> m)
{
    a.number("landlock_abi", m.landlock_abi);
    a.number("landlock_handled_fs", m.landlock_handled_fs);
    a.number("landlock_handled_net", m.landlock_handled_net);
    a.number("landlock_scoped", m.landlock_scoped);
    // 512 paths of 4096 bytes would be more than the record may have: the record's ceiling is the
    // real bound.
    a.list("landlock", m.landlock, 512, [](auto& archive, auto& rule) {
        archive.text("landlock.path", rule.path, 4096, Text::c_string);
        archive.number("landlock.access", rule.access);
        // Relative to what would be anybody's guess.
        archive.require(!rule.path.empty() && rule.path.front() == '/', "landlock.path");
    });
    a.list("landlock_ports", m.landlock_ports, 64, [](auto& archive, auto& rule) {
        archive.number("landlock_ports.port", rule.port);
        archive.number("landlock_ports.access", rule.access);
    });
    // "No Landlock" is said once, never by a rule set that would then be silently unused.
    const bool unused = m.landlock_handled_fs == 0 && m.landlock_handled_net == 0 &&
                        m.landlock_scoped == 0 && m.landlock.empty() && m.landlock_ports.empty();
    a.require(m.landlock_abi != 0 || unused, "landlock_abi");
}

template <class A>
void visit(A& a, In<A, Bootstrap> m)
{
    // In the order of docs/protocol.md; checks that look at several fields come last.
    a.version(m.version, kProtocolVersion);
    a.tag("mode", m.mode, BootMode::microvm, BootMode::host_sandbox);
    a.tag("channel", m.channel, BootChannel::inherited_fd, BootChannel::vsock);
    a.number("channel_fd", m.channel_fd);
    a.text("sandbox_id", m.sandbox_id, 64, Text::c_string);
    a.text("hostname", m.hostname, 63, Text::c_string);
    // 0 would make a sandbox that cannot start anything.
    a.number("max_sessions", m.max_sessions);
    a.list("permitted_ids", m.permitted_ids, 64, [](auto& archive, auto& id) {
        archive.number("permitted_ids.uid", id.uid);
        archive.number("permitted_ids.gid", id.gid);
    });
    visit_ids(a, "permitted_groups", m.permitted_groups, 1024);
    a.number("capabilities", m.capabilities);
    visit_landlock(a, m);
    a.blob("bpf", m.bpf, kMaxBpf);
    visit_env(a, "env", m.env, 256, 4096);
    visit_rlimits(a, m.rlimits);
    a.number("heartbeat_ms", m.heartbeat_ms);
    a.number("silent_ms", m.silent_ms);
    a.number("stop_grace_ms", m.stop_grace_ms);
    a.require(m.channel == BootChannel::inherited_fd || m.channel_fd == 0, "channel_fd");
    a.require(m.max_sessions != 0, "max_sessions");
    // A half instruction would be read past its end.
    a.require(m.bpf.size() % 8 == 0, "bpf");
}

template Result<ByteVector> encode_packet(const InitUp&);
template Result<ByteVector> encode_packet(const Pass&);
template Result<ByteVector> encode_packet(const PassRefused&);
template Result<ByteVector> encode_packet(const InitLog&);
template Result<ByteVector> encode_packet(const SessionOpened&);
template Result<ByteVector> encode_packet(const SessionEnded&);
template Result<ByteVector> encode_packet(const GuestFaulty&);
template Result<ByteVector> encode_packet(const GuestReport&);
template Result<ByteVector> encode(const Bootstrap&);
template Decoded<InitMessage> decode_as<InitMessage>(Direction, std::uint8_t,
                                                     std::span<const std::byte>);
template Decoded<BootstrapMessage> decode_as<BootstrapMessage>(Direction, std::uint8_t,
                                                               std::span<const std::byte>);

// A packet has no header: the socket keeps the borders (seqpacket, unix(7)).
Decoded<InitMessage> decode_packet(Direction direction, std::span<const std::byte> packet)
{
    // An empty packet is how a closed channel reads; who calls looks at that first.
    if (packet.empty()) {
        return std::unexpected(Failure{WireError::truncated, "packet without a type"});
    }
    return decode_as<InitMessage>(direction, std::to_integer<std::uint8_t>(packet.front()),
                                  packet.subspan(1));
}

Decoded<Bootstrap> decode_bootstrap(std::span<const std::byte> record)
{
    if (record.size() < kHeaderSize) {
        return std::unexpected(Failure{WireError::truncated, "bootstrap header", record.size()});
    }
    const Header header = TRY(decode_header(Port::bootstrap, Direction::to_guest, Stage::first,
                                            record.first<kHeaderSize>()));
    const auto payload = record.subspan(kHeaderSize);
    if (payload.size() < header.length) {
        return std::unexpected(Failure{WireError::truncated, "bootstrap payload", payload.size()});
    }
    // More than one frame would be a second record that nobody has checked.
    if (payload.size() > header.length) {
        return std::unexpected(
            Failure{WireError::bad_payload, "bytes after the bootstrap record", payload.size()});
    }
    auto message = TRY(decode_as<BootstrapMessage>(Direction::to_guest, header.type, payload));
    return std::get<Bootstrap>(std::move(message));
}

}  // namespace sandbox::wire
