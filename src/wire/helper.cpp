// SPDX-License-Identifier: Apache-2.0
#include "wire/helper.hpp"

#include "wire/serialize.hpp"

namespace sandbox::wire {

// In the order of the numbers, 1 to 19; docs/protocol.md has the same words.
std::string_view to_string(RefusalCode code) noexcept
{
    static constexpr std::array<std::string_view, 20> kNames{"",
                                                             "peer_refused",
                                                             "version_mismatch",
                                                             "malformed",
                                                             "unknown_op",
                                                             "bad_id",
                                                             "unknown_instance",
                                                             "exists",
                                                             "wrong_state",
                                                             "out_of_bounds",
                                                             "instance_limit",
                                                             "image_missing",
                                                             "image_digest_mismatch",
                                                             "busy",
                                                             "unsupported",
                                                             "cross_device",
                                                             "verification_failed",
                                                             "gap",
                                                             "syscall_failed",
                                                             "absence_not_verified"};
    const auto index = static_cast<std::size_t>(code);
    // A number from another version has no name here.
    return index < kNames.size() ? kNames.at(index) : "unknown";
}

template <class A>
void visit(A& a, In<A, HelperHello> m)
{
    a.version(m.version, kHelperVersion);
}

template <class A>
void visit(A& a, In<A, HelperWelcome> m)
{
    a.version(m.version, kHelperVersion);
    a.text("helper_version", m.helper_version, 64);
    a.tag("engine", m.engine, HelperEngine::firecracker, HelperEngine::hcs);
    a.text("engine_version", m.engine_version, 64);
}

template <class A>
void visit(A& a, In<A, HelperRequest> m)
{
    a.tag("op", m.op, HelperOp::probe, HelperOp::image_add);
    // An unknown op cannot say which fields follow.
    if (a.failed() || m.op == HelperOp::probe || m.op == HelperOp::inventory) return;
    if (m.op == HelperOp::image_add) {
        a.array("digest", m.digest);
        a.tag("kind", m.kind, ImageKind::kernel_vmlinux, ImageKind::base_vhdx);
        a.number("size", m.size);
        return;
    }
    a.array("id", m.id);
    // The fields that an op does not use are not in the bytes, and zero in the struct.
    if (m.op == HelperOp::create) a.number("disk_gib", m.disk_gib);
    if (m.op != HelperOp::start) return;
    a.array("kernel", m.kernel);
    a.array("base", m.base);
    a.number("cpus", m.cpus);
    a.number("memory_mib", m.memory_mib);
}

enum class EndpointTag : std::uint8_t { unix_path = 1, runtime_id = 2 };

// A variant cannot be visited both ways by one description: reading has to make the alternative
// first.
inline void visit_endpoint(Reader& reader, Endpoint& endpoint)
{
    EndpointTag tag = EndpointTag::unix_path;
    reader.tag("endpoint", tag, EndpointTag::unix_path, EndpointTag::runtime_id);
    if (tag == EndpointTag::unix_path) {
        reader.text("endpoint.path", endpoint.emplace<UnixPath>().path, 4096, Text::c_string);
    } else {
        reader.array("endpoint.id", endpoint.emplace<Id16>());
    }
}

inline void visit_endpoint(Writer& writer, const Endpoint& endpoint)
{
    if (const auto* path = std::get_if<UnixPath>(&endpoint)) {
        writer.number("endpoint", std::uint8_t{1});
        writer.text("endpoint.path", path->path, 4096, Text::c_string);
    } else if (const auto* id = std::get_if<Id16>(&endpoint)) {
        writer.number("endpoint", std::uint8_t{2});
        writer.array("endpoint.id", *id);
    }
}

template <class A>
// 65535: all that a list's count can say; the frame's ceiling is lower.
void visit_inventory(A& a, In<A, std::vector<InventoryEntry>> entries)
{
    a.list("entries", entries, 65535, [](auto& archive, auto& entry) {
        archive.array("entries.id", entry.id);
        archive.tag("entries.state", entry.state, InstanceState::running, InstanceState::unknown);
        archive.boolean("entries.claimed", entry.claimed);
        archive.number("entries.pid", entry.pid);
        archive.number("entries.start_time", entry.start_time);
        visit_endpoint(archive, entry.endpoint);
    });
}

template <class A>
void visit(A& a, In<A, HelperResult> m)
{
    a.tag("op", m.op, HelperOp::probe, HelperOp::image_add);
    if (a.failed()) return;
    // No default: a new op has to be placed here.
    switch (m.op) {
    case HelperOp::probe:
        return a.list("facts", m.facts, 1024, [](auto& archive, auto& fact) {
            archive.text("facts.name", fact.name, 64);
            archive.tag("facts.status", fact.status, ProbeStatus::ok, ProbeStatus::note);
            archive.text("facts.evidence", fact.evidence, 512);
        });
    case HelperOp::create: return a.number("uid", m.uid);
    case HelperOp::start:
        a.number("pid", m.pid);
        a.number("start_time", m.start_time);
        return visit_endpoint(a, m.endpoint);
    case HelperOp::kill:
    case HelperOp::remove:
        return a.list("absences", m.absences, 16, [](auto& archive, auto& absence) {
            archive.tag("absences.item", absence.item, AbsenceItem::jail,
                        AbsenceItem::snapshot_files);
            archive.boolean("absences.absent", absence.absent);
        });
    case HelperOp::inventory: return visit_inventory(a, m.entries);
    case HelperOp::pause:
    case HelperOp::resume:
    case HelperOp::stop:
    case HelperOp::image_add: return;
    }
}

// RefusalCode is two bytes wide, so it travels as a number and is checked here.
template <class A, class M>
void visit_refusal(A& a, M& m)
{
    auto code = static_cast<std::uint16_t>(m.code);
    a.number("code", code);
    // After a failure the number is zero, and the failure is told already.
    a.require(a.failed() || (code >= 1 && code <= 19), "code");
    if constexpr (std::is_same_v<A, Reader>) m.code = static_cast<RefusalCode>(code);
    a.number("step", m.step);
    a.number("os_error", m.os_error);
    a.text("detail", m.detail, 256);
}
inline void visit(Reader& reader, HelperRefusal& message) { visit_refusal(reader, message); }
inline void visit(Writer& writer, const HelperRefusal& message) { visit_refusal(writer, message); }

template Result<ByteVector> encode(const HelperHello&);
template Result<ByteVector> encode(const HelperWelcome&);
template Result<ByteVector> encode(const HelperRequest&);
template Result<ByteVector> encode(const HelperResult&);
template Result<ByteVector> encode(const HelperRefusal&);
template Decoded<HelperMessage> decode_as<HelperMessage>(Direction, std::uint8_t,
                                                         std::span<const std::byte>);

}  // namespace sandbox::wire
