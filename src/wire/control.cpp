// SPDX-License-Identifier: Apache-2.0
#include "wire/serialize.hpp"

#include <algorithm>

namespace sandbox::wire {

template <class A>
void visit(A& a, In<A, Hello> m)
{
    a.version(m.version, kProtocolVersion);
    a.array("instance_id", m.instance_id);
    a.number("host_time_ns", m.host_time_ns);
    a.boolean("resume", m.resume);
}

template <class A>
void visit(A& a, In<A, Welcome> m)
{
    a.version(m.version, kProtocolVersion);
    // Texts of a guest: bounded, shown escaped.
    a.text("agent_version", m.agent_version, 64);
    a.text("kernel_release", m.kernel_release, 64);
    a.boolean("provisioned", m.provisioned);
    a.tag("service_state", m.service_state, ServiceState::not_started,
          ServiceState::waiting_to_restart);
}

template <class A>
void visit(A& a, In<A, Provision> m)
{
    a.array("event_nonce", m.event_nonce);
    a.array("egress_token", m.egress_token);
    a.array("service_token", m.service_token);
    // 63: a DNS label, RFC 1035, and the kernel's limit (HOST_NAME_MAX is 64).
    a.text("hostname", m.hostname, 63, Text::c_string);
    a.number("time_ns", m.time_ns);
    a.boolean("first_boot", m.first_boot);
    // 32 keys, more than any service needs; each short, because PROVISION is one head of 8 KiB.
    a.list("provider_keys", m.provider_keys, 32, [](auto& archive, auto& key) {
        archive.text("provider_keys.binding", key.binding, 64);
        archive.text("provider_keys.env_name", key.env_name, 64, Text::c_string);
        archive.text("provider_keys.value", key.value, 256, Text::c_string);
        // execve(2) takes "NAME=VALUE": a name with '=' in it would be another variable.
        archive.require(!key.env_name.empty() && key.env_name.find('=') == std::string::npos,
                        "provider_keys.env_name");
    });
}

template <class A>
void visit(A& a, In<A, Ready> m)
{
    a.number("policy_generation", m.policy_generation);
}

template <class A>
void visit(A& a, In<A, TimeSet> m)
{
    a.number("time_ns", m.time_ns);
}

template <class A>
void visit(A& a, In<A, TimeAck> m)
{
    a.number("offset_ns", m.offset_ns);
}

template <class A>
void visit(A& a, In<A, Rotate> m)
{
    a.tag("kind", m.kind, RotateKind::event_nonce, RotateKind::provider_key);
    a.text("binding", m.binding, 64);
    a.blob("value", m.value, 256);
    // Only provider keys have names; a name with another kind would be ignored otherwise.
    a.require(m.binding.empty() || m.kind == RotateKind::provider_key, "binding");
}

template <class A>
void visit(A& a, In<A, Rotated> m)
{
    a.tag("kind", m.kind, RotateKind::event_nonce, RotateKind::provider_key);
}

template <class A>
void visit(A& a, In<A, Stats> m)
{
    a.number("uptime_ms", m.uptime_ms);
    a.number("mem_total_kib", m.mem_total_kib);
    a.number("mem_available_kib", m.mem_available_kib);
    a.number("load1_milli", m.load1_milli);
    a.number("cpu_count", m.cpu_count);
    a.number("data_total_kib", m.data_total_kib);
    a.number("data_used_kib", m.data_used_kib);
    a.number("service_restarts", m.service_restarts);
}

template <class A>
void visit(A& a, In<A, Poweroff> m)
{
    a.tag("reason", m.reason, PoweroffReason::stop, PoweroffReason::host_shutdown);
}

template <class A>
void visit(A& a, In<A, Secret> m)
{
    a.tag("place", m.place, SecretPlace::variable, SecretPlace::file);
    a.number("uid", m.uid);
    a.number("gid", m.gid);
    a.text("name", m.name, 4096, Text::c_string);
    a.blob("value", m.value, kMaxSecretValue);
    // The place says what the name is: a variable's is never a path and a file's always one.
    const bool file = m.place == SecretPlace::file;
    a.require(!m.name.empty() && (m.name.front() == '/') == file, "name");
    a.require(file || m.name.find('=') == std::string::npos, "name");
    // execve(2) would cut the value there, without a word.
    a.require(file || std::ranges::find(m.value, std::byte{0}) == m.value.end(), "value");
}

template <class A>
void visit(A& a, In<A, SignalSession> m)
{
    a.text("session", m.session, 64, Text::c_string);
    a.number("signal", m.signal);
    if (m.signal < 1 || m.signal > 64) a.fail(WireError::refused, "signal", m.signal);
}

template <class A>
void visit(A& a, In<A, SessionSignaled> m)
{
    a.boolean("found", m.found);
}

// By hand and not through encode(): the value stays where it is locked, and is sent from there.
Result<ByteVector> encode_secret_head(const Secret& secret, std::size_t value_size)
{
    if (value_size > kMaxSecretValue)
        return fail(Code::invalid_argument, "a secret longer than 64 KiB");
    Secret empty;
    empty.place = secret.place;
    empty.uid = secret.uid;
    empty.gid = secret.gid;
    empty.name = secret.name;
    // With an empty value, so that the encoder checks the rest.
    ByteVector frame = TRY(encode(empty));
    // The two lengths that the value has a part in: the payload's and its own.
    const auto count = static_cast<std::uint32_t>(value_size);
    const auto length = static_cast<std::uint32_t>(frame.size() - kHeaderSize) + count;
    std::ranges::copy(encode_header({Secret::kType, length}), frame.begin());
    // The value's own length is the last field of the head: four bytes of zero until now.
    const HeaderBytes own = encode_header({0, count});
    std::copy_n(own.begin(), sizeof count, frame.end() - sizeof count);
    return frame;
}

// All messages of the port, here: a program that speaks it links them, others do not.
template Result<ByteVector> encode(const ErrorMessage&);
template Result<ByteVector> encode(const Hello&);
template Result<ByteVector> encode(const Welcome&);
template Result<ByteVector> encode(const Provision&);
template Result<ByteVector> encode(const Provisioned&);
template Result<ByteVector> encode(const Ready&);
template Result<ByteVector> encode(const ReadyAck&);
template Result<ByteVector> encode(const TimeSet&);
template Result<ByteVector> encode(const TimeAck&);
template Result<ByteVector> encode(const Rotate&);
template Result<ByteVector> encode(const Rotated&);
template Result<ByteVector> encode(const StatsRequest&);
template Result<ByteVector> encode(const Stats&);
template Result<ByteVector> encode(const Poweroff&);
template Result<ByteVector> encode(const PoweroffAck&);
template Result<ByteVector> encode(const Fstrim&);
template Result<ByteVector> encode(const FstrimStarted&);
template Result<ByteVector> encode(const Secret&);
template Result<ByteVector> encode(const SecretKept&);
template Result<ByteVector> encode(const SignalSession&);
template Result<ByteVector> encode(const SessionSignaled&);
template Decoded<ControlMessage> decode_as<ControlMessage>(Direction, std::uint8_t,
                                                           std::span<const std::byte>);

}  // namespace sandbox::wire
