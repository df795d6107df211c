// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "wire/messages.hpp"

// The privileged helper's protocol: one operation a connection, the same frames and encodings. The
// daemon is the host side, the helper the other. No request field is a string: a path from a caller
// cannot be expressed. Versioned apart (kHelperVersion), because both ends are installed apart.
namespace sandbox::wire {

// Numbers of the wire; never used again for something else.
enum class HelperEngine : std::uint8_t { firecracker = 1, hcs = 2 };
enum class HelperOp : std::uint8_t {
    probe = 1,
    create = 2,
    start = 3,
    pause = 4,
    resume = 5,
    stop = 6,
    kill = 7,
    remove = 8,
    inventory = 9,
    image_add = 10,
};

// Codes of REFUSAL, 1 to 19 (docs/protocol.md says when).
enum class RefusalCode : std::uint16_t {
    peer_refused = 1,
    version_mismatch,
    malformed,
    unknown_op,
    bad_id,
    unknown_instance,
    exists,
    wrong_state,
    out_of_bounds,
    instance_limit,
    image_missing,
    image_digest_mismatch,
    busy,
    unsupported,
    cross_device,
    verification_failed,
    gap,
    syscall_failed,
    absence_not_verified,
};
std::string_view to_string(RefusalCode code) noexcept;

// SHA-256, as raw bytes.
using Digest32 = std::array<std::uint8_t, 32>;

// What the client says first, and the helper's answer.
struct HelperHello {
    static constexpr std::uint8_t kType = 0xA0;
    std::uint16_t version = kHelperVersion;
    bool operator==(const HelperHello&) const = default;
};
struct HelperWelcome {
    static constexpr std::uint8_t kType = 0xA1;
    std::uint16_t version = kHelperVersion;
    std::string helper_version;  // 64
    HelperEngine engine = HelperEngine::firecracker;
    std::string engine_version;  // 64
    bool operator==(const HelperWelcome&) const = default;
};

enum class ImageKind : std::uint8_t {
    kernel_vmlinux = 1,
    kernel_bzimage = 2,
    kernel_image = 3,
    base_raw = 4,
    base_vhdx = 5,
};

// One flat struct: `op` says which fields travel; the others are left at zero.
struct HelperRequest {
    static constexpr std::uint8_t kType = 0xA2;
    HelperOp op = HelperOp::probe;
    Id16 id{};  // create … delete
    std::uint16_t disk_gib = 0;  // create
    Digest32 kernel{};  // start
    Digest32 base{};  // start
    std::uint8_t cpus = 0;  // start
    std::uint32_t memory_mib = 0;  // start
    Digest32 digest{};  // image_add; the open file travels by SCM_RIGHTS
    ImageKind kind = ImageKind::kernel_vmlinux;  // image_add
    std::uint64_t size = 0;  // image_add
    bool operator==(const HelperRequest&) const = default;
};

enum class ProbeStatus : std::uint8_t { ok = 1, gap = 2, note = 3 };
struct ProbeFact {
    std::string name;  // 64
    ProbeStatus status = ProbeStatus::ok;
    std::string evidence;  // 512
    bool operator==(const ProbeFact&) const = default;
};
struct UnixPath {
    std::string path;  // 4096
    bool operator==(const UnixPath&) const = default;
};
// Tag 1: a unix path; tag 2: the runtime id of a compute system.
using Endpoint = std::variant<UnixPath, Id16>;
// What is proven to be gone after an end: one entry each, so that a report cannot be vague.
enum class AbsenceItem : std::uint8_t {
    jail = 1,
    cgroup_leaf = 2,
    data_disk = 3,
    instance_directory = 4,
    uid = 5,
    compute_system = 6,
    vm_access_grant = 7,
    save_file = 8,
    snapshot_files = 9,
};
struct Absence {
    AbsenceItem item = AbsenceItem::jail;
    bool absent = false;
    bool operator==(const Absence&) const = default;
};
enum class InstanceState : std::uint8_t { running = 1, paused = 2, stopped = 3, unknown = 4 };
struct InventoryEntry {
    Id16 id{};
    InstanceState state = InstanceState::unknown;
    bool claimed = false;
    // With start_time, both as in /proc/PID/stat, it names one process (law 7).
    std::uint32_t pid = 0;
    std::uint64_t start_time = 0;
    Endpoint endpoint;
    bool operator==(const InventoryEntry&) const = default;
};

// As HelperRequest: `op` says which fields travel.
struct HelperResult {
    static constexpr std::uint8_t kType = 0xA3;
    HelperOp op = HelperOp::probe;
    std::vector<ProbeFact> facts;  // probe
    std::uint32_t uid = 0;  // create
    std::uint32_t pid = 0;  // start
    std::uint64_t start_time = 0;  // start
    Endpoint endpoint;  // start
    std::vector<Absence> absences;  // kill, delete
    std::vector<InventoryEntry> entries;  // inventory
    bool operator==(const HelperResult&) const = default;
};
struct HelperRefusal {
    static constexpr std::uint8_t kType = 0xA4;
    RefusalCode code = RefusalCode::malformed;
    // Which step of the operation, counted from 0; the helper's log has its name.
    std::uint8_t step = 0;
    // errno on Linux; 0: none.
    std::int64_t os_error = 0;
    std::string detail;  // 256
    bool operator==(const HelperRefusal&) const = default;
};

using HelperMessage =
    std::variant<HelperHello, HelperWelcome, HelperRequest, HelperResult, HelperRefusal>;

}  // namespace sandbox::wire
