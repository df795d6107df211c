// SPDX-License-Identifier: Apache-2.0
#include "wire/serialize.hpp"

namespace sandbox::wire {

template <class A>
void visit(A& a, In<A, Open> m)
{
    constexpr std::size_t kItems = 65535;  // what a list's count can say
    a.version(m.version, kProtocolVersion);
    a.tag("kind", m.kind, SessionKind::pty, SessionKind::copy_out);
    a.number("uid", m.uid);
    a.number("gid", m.gid);
    visit_ids(a, "groups", m.groups, 1024);
    a.list("argv", m.argv, kItems,
           [](auto& archive, auto& item) { archive.text("argv", item, kMaxItem, Text::c_string); });
    visit_env(a, "env", m.env, kItems, kMaxItem);
    a.text("cwd", m.cwd, 4096, Text::c_string);
    a.text("term", m.term, 64, Text::c_string);
    a.number("rows", m.rows);
    a.number("cols", m.cols);
    a.number("timeout_ms", m.timeout_ms);
    a.number("umask", m.umask);
    visit_rlimits(a, m.rlimits);
    a.boolean("gate", m.gate);
    a.tag("stdio", m.stdio, SessionStdio::frames, SessionStdio::descriptors);
    // An empty argv has surprised programs (CVE-2021-4034); Linux puts an empty string there since
    // 5.18.
    a.require(!m.argv.empty(), "argv");
    // A relative one would depend on where PID 1 happens to be.
    a.require(m.cwd.empty() || m.cwd.front() == '/', "cwd");
    a.require(m.umask <= 0777, "umask");
}

template <class A>
void visit(A& a, In<A, Started> m)
{
    a.number("pid", m.pid);
}

template <class A>
void visit(A& a, In<A, Resize> m)
{
    a.number("rows", m.rows);
    a.number("cols", m.cols);
}

template <class A>
void visit(A& a, In<A, Signal> m)
{
    a.number("signal", m.signal);
    // A well-formed request that is not granted, not a broken payload (error 9).
    if (m.signal < 1 || m.signal > 64) a.fail(WireError::refused, "signal", m.signal);
}

template <class A>
void visit(A& a, In<A, Silent> m)
{
    a.number("silent_ms", m.silent_ms);
}

template <class A>
void visit(A& a, In<A, Exit> m)
{
    a.tag("outcome", m.outcome, ExitOutcome::exited, ExitOutcome::failed_to_start);
    a.number("value", m.value);
}

template <class A>
void visit(A& a, In<A, Confined> m)
{
    a.number("pid", m.pid);
    a.number("uid", m.uid);
    a.number("gid", m.gid);
    visit_ids(a, "groups", m.groups, 1024);
    a.number("caps.inheritable", m.caps.inheritable);
    a.number("caps.permitted", m.caps.permitted);
    a.number("caps.effective", m.caps.effective);
    a.number("caps.bounding", m.caps.bounding);
    a.number("caps.ambient", m.caps.ambient);
    a.boolean("no_new_privs", m.no_new_privs);
    a.number("seccomp_mode", m.seccomp_mode);
    a.number("seccomp_filters", m.seccomp_filters);
    a.number("landlock_abi", m.landlock_abi);
    // 256: a child that holds more is not what was planned, and the report has to fit a head of 8
    // KiB.
    visit_ids(a, "open_fds", m.open_fds, 256);
}

template <class A>
void visit(A& a, In<A, CloseOutput> m)
{
    a.number("output", m.output);
    a.require(m.output == 1 || m.output == 2, "output");
}

template Result<ByteVector> encode(const Open&);
template Result<ByteVector> encode(const Started&);
template Result<ByteVector> encode(const Stdin&);
template Result<ByteVector> encode(const StdinEof&);
template Result<ByteVector> encode(const Stdout&);
template Result<ByteVector> encode(const Stderr&);
template Result<ByteVector> encode(const Resize&);
template Result<ByteVector> encode(const Signal&);
template Result<ByteVector> encode(const Silent&);
template Result<ByteVector> encode(const Exit&);
template Result<ByteVector> encode(const Confined&);
template Result<ByteVector> encode(const Go&);
template Result<ByteVector> encode(const CloseOutput&);
template Decoded<SessionMessage> decode_as<SessionMessage>(Direction, std::uint8_t,
                                                           std::span<const std::byte>);

}  // namespace sandbox::wire
