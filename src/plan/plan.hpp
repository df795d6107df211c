// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/strong.hpp"
#include "canon/canon.hpp"
#include "profile/types.hpp"

// A plan is everything that is enforced, as data. Values only: it owns its strings, holds no
// descriptors and no pointers, and may be copied to and read in any thread.
namespace sandbox::plan {

// How strong the boundary is; separate from the driver so that a driver's name hides nothing.
enum class IsolationClass { shared_kernel, emulated_vm, hardware_vm };  // weakest first
std::string_view to_string(IsolationClass value) noexcept;

// Which cgroup hierarchy carries the limits.
enum class CgroupVersion { none, v1, v2 };
std::string_view to_string(CgroupVersion value) noexcept;

// What executes a guest's instructions: KVM (hardware) or QEMU's translator, which is no boundary.
enum class Accelerator { kvm, tcg };
std::string_view to_string(Accelerator value) noexcept;

enum class RootfsStrategy {
    host_tree,     // fresh skeleton, /usr bound from the host, generated /etc
    overlay_tmpfs  // the source as lower layer, a tmpfs as upper
};
enum class Ownership {
    overflow,      // foreign owners show as 65534; nothing is mapped
    idmap_user,    // only the profile's uid and gid are mapped
    idmap_all      // the tree's ids 0..65535 are the sandbox's
};
std::string_view to_string(RootfsStrategy value) noexcept;
std::string_view to_string(Ownership value) noexcept;

// What PID 1 starts. Everything that the profile left open has a value here.
struct ProcessPlan {
    std::vector<std::string> argv;  // empty exactly when idle
    bool idle = false;
    std::map<std::string, std::string> env;  // complete: PATH, HOME and the profile's own
    GuestPath cwd;
    // Of the sandbox's user namespace.
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
    // Nine bits, umask(2).
    std::uint32_t umask = 0;
    bool terminal = false;
    // Of the whole run, from its start; nothing: for ever.
    std::optional<Millis> timeout;
    // Names as in getrlimit(2) without RLIMIT_, lower case; values in the kernel's units.
    std::map<std::string, std::uint64_t> rlimits;  // soft = hard
    bool operator==(const ProcessPlan&) const = default;
};

struct RootfsPlan {
    std::string kind;  // "host" | "dir"
    HostPath source;   // the directory; "/usr" for host
    bool read_only = true;
    RootfsStrategy strategy = RootfsStrategy::host_tree;
    Ownership ownership = Ownership::overflow;
    // Content, not paths: it is in the digest, and no file of the host can change it later.
    std::map<std::string, std::string> etc;  // generated files, name below /etc -> content
    bool operator==(const RootfsPlan&) const = default;
};

struct MountPlan {
    profile::MountType type = profile::MountType::bind;
    HostPath source;  // bind only
    GuestPath target;
    bool read_only = true;
    Ownership ownership = Ownership::idmap_user;  // bind only
    std::optional<Bytes> size;                    // tmpfs only
    std::uint32_t mode = 0;                       // tmpfs only
    bool operator==(const MountPlan&) const = default;
};

struct NetworkPlan {
    profile::NetworkMode mode = profile::NetworkMode::none;
    std::string hostname;
    bool operator==(const NetworkPlan&) const = default;
};

// One limit as the kernel takes it: written to the file, then read back and compared.
struct CgroupSetting {
    std::string controller;  // "memory", "pids", "cpu", "cpuset"
    std::string file;        // "memory.limit_in_bytes", "memory.max", …
    std::string value;       // exactly what the file must read back
    bool operator==(const CgroupSetting&) const = default;
};

struct ResourcePlan {
    CgroupVersion version = CgroupVersion::none;
    std::vector<std::string> controllers;   // hierarchies or controllers to join, sorted
    std::vector<CgroupSetting> workload;    // limits of the whole workload, in write order
    std::vector<CgroupSetting> control;     // limits of PID 1's own leaf
    bool operator==(const ResourcePlan&) const = default;
};

// What confines the workload beyond files and limits.
struct SecurityPlan {
    std::vector<std::string> namespaces;  // "cgroup","ipc","mount","net","pid","user","uts"; sorted
    std::vector<std::string> capabilities;  // of the workload, sorted; empty by default
    profile::SeccompProfile seccomp = profile::SeccompProfile::standard;
    // "sha256:…"; the rules themselves are compiled into sandbox-init.
    std::string seccomp_digest;  // of the inner rule set
    std::uint32_t landlock_abi = 0;  // 0: not applied (then listed as not enforced)
    std::uint32_t id_count = 65536;  // complete map
    std::vector<GuestPath> masked;  // kernel paths that must not be read
    std::vector<GuestPath> read_only;  // kernel paths that must not be written
    bool operator==(const SecurityPlan&) const = default;
};

// One folder or file of this host that a guest can reach. Writability is never merged.
struct SharePlan {
    HostPath source;
    bool read_only = true;
    Ownership ownership = Ownership::idmap_user;
    bool operator==(const SharePlan&) const = default;
};

// Code that QEMU translates and keeps under TCG, at most. Its own default is a quarter of the host's
// memory, up to 1 GiB.
inline constexpr Bytes kTranslationCache{128ULL << 20};

// The machine of a microVM and what holds it on this host. ResourcePlan is then what the guest
// enforces inside, by cgroup v2 of its own.
struct MicrovmPlan {
    Accelerator accelerator = Accelerator::kvm;
    std::string guest_arch;  // "x86_64"
    std::string guest_release;  // kernel release, as pinned; empty where the pin names none
    std::uint32_t cpus = 1;
    Bytes memory{0};  // of the guest, whole MiB
    Bytes overhead{0};  // of VMM and virtiofsd: memory + overhead is the host cgroup's limit
    std::vector<SharePlan> shares;  // their places are their names inside; at most 32
    ResourcePlan
        host;  // limits of VMM and helpers on this host; PlanContent::resources are the guest's
    bool operator==(const MicrovmPlan&) const = default;
};

// A requirement turned into something that enforces it. Every control here is mandatory: what is
// optional and missing stands under `unenforced`.
// Unique names: evidence is found by them.
struct Control {
    std::string name;  // "namespace.user", "limit.memory", "seccomp.filter", "mount:/work"
    std::string mechanism;  // "user namespace", "cgroup v1 memory.limit_in_bytes"
    std::string planned;  // the value evidence is compared with
    auto operator<=>(const Control&) const = default;
};

// Said in plain sight instead of being left out.
struct Unenforced {
    std::string name;
    std::string reason;
    auto operator<=>(const Unenforced&) const = default;
};

// A fact of the host as it was when the plan was made, so that a launch can find it changed.
struct FactRef {
    std::string status;
    std::string value;
    bool operator==(const FactRef&) const = default;
};

// Everything a plan says. Built by the resolver or the decoder only; both have checked it.
struct PlanContent {
    // As asked for, with defaults: `plan --diff` compares it, and a live update starts from it.
    profile::Profile request;
    profile::Driver driver = profile::Driver::oci;
    IsolationClass isolation_class = IsolationClass::shared_kernel;
    ProcessPlan process;
    RootfsPlan rootfs;
    std::vector<MountPlan> mounts;  // parents before children
    // Sorted; shown empty inside.
    std::vector<GuestPath> masks;
    NetworkPlan network;
    ResourcePlan resources;
    SecurityPlan security;
    std::optional<MicrovmPlan> microvm;  // exactly where driver is microvm
    std::vector<Control> controls;  // sorted by name
    std::vector<Unenforced> unenforced;  // sorted by name
    std::string policy_digest;
    // Name to "sha256:…" of the file that was used; a launch refuses others.
    std::map<std::string, std::string> artifacts;  // "oci.runtime", "sandbox-init", "sandbox-shim"
    std::map<std::string, FactRef> facts;  // relied on
    std::vector<std::string> warnings;  // for people: "shares the host's network"
    bool operator==(const PlanContent&) const = default;
};

// Immutable. Same inputs, same bytes, same digest; equal bytes are equality. Costs two copies of
// the content in memory, a few KiB each.
class ExecutionPlan {
public:
    // Serializes and digests once. corrupt: some text is not UTF-8; invalid_argument: an integer is
    // beyond 2^53-1 (RFC 8785 knows doubles only).
    [[nodiscard]] static Result<ExecutionPlan> seal(PlanContent content);

    const PlanContent& content() const noexcept { return content_; }
    const PlanContent* operator->() const noexcept { return &content_; }
    const PlanDigest& digest() const noexcept { return digest_; }
    // Canonical JSON (RFC 8785) of the content, without the digest.
    const std::string& canonical() const noexcept { return canonical_; }

    bool operator==(const ExecutionPlan& other) const { return canonical_ == other.canonical_; }

private:
    ExecutionPlan(PlanContent content, std::string canonical, PlanDigest digest)
        : content_(std::move(content)), canonical_(std::move(canonical)), digest_(std::move(digest))
    {
    }

    PlanContent content_;
    std::string canonical_;
    PlanDigest digest_;
};

// File format: docs/formats/plan.md.
// A reader refuses every other version: a plan is made anew from the profile, never converted.
inline constexpr int kPlanVersion = 1;

// {"version":1,"digest":"sha256:…","plan":{…}} in canonical form plus a newline. Never fails; the
// Result is for callers that go on with TRY.
[[nodiscard]] Result<std::string> encode_file(const ExecutionPlan& plan);
// Strict: unknown and missing keys, wrong types and a digest that does not match are refused, also
// white space that encode_file() would not write. corrupt for all of them, with a text for the
// user. Hostile input is expected.
[[nodiscard]] Result<ExecutionPlan> decode_file(std::string_view bytes);

// What a person reads in ten seconds. Escaped for a terminal; not stable, programs read the JSON.
std::string render_table(const ExecutionPlan& plan);

// One leaf that differs; texts are not escaped.
struct Change {
    std::string key;  // profile key path, or plan path for derived values
    std::string from;
    std::string to;
    profile::ChangeClass change_class;
};
// The profile's keys first, then derived ones ("plan.…"), each sorted; empty exactly when the plans
// are equal.
std::vector<Change> diff(const ExecutionPlan& from, const ExecutionPlan& to);

}  // namespace sandbox::plan
