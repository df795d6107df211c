// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "driver/driver.hpp"
#include "plan/plan.hpp"
#include "wire/messages.hpp"

// (plan, binding) -> everything the launcher will do, as data. Pure.
//
// The file tree is ours, not crun's: the launcher builds it in its own mount namespace from
// `steps`, so that every source is opened once by descriptor and every target is resolved beneath
// the tree. crun gets a ready root and adds what needs the new namespaces: /proc, /dev and below.
namespace sandbox::driver::oci {

// `count` ids from `inside` (what the tree holds) shown as `host` (what the sandbox's range is).
struct IdRange {
    std::uint32_t inside = 0;
    std::uint32_t host = 0;
    std::uint32_t count = 0;
    bool operator==(const IdRange&) const = default;
};

// An idmapped mount's maps; both empty: the mount is not idmapped and foreign ids overflow.
struct MountIdMap {
    std::vector<IdRange> uids;
    std::vector<IdRange> gids;
    bool operator==(const MountIdMap&) const = default;
};

enum class Access { read_only, read_write };

// What a mount target lies in. A missing target in a tree of ours is made; in an operator's tree
// it must exist, for nothing of ours is ever written there.
enum class Ground { ours, operators };

// The root itself, first of all steps.
struct RootTmpfs {
    std::uint32_t owner = 0;  // host id
    std::uint64_t size = 0;   // bytes
    bool operator==(const RootTmpfs&) const = default;
};
struct Overlay {
    std::string target;  // below the tree, "" is the root
    HostPath lower;
    MountIdMap lower_map;
    std::uint64_t size = 0;  // of the upper tmpfs
    bool operator==(const Overlay&) const = default;
};
// Paths below the tree carry no leading slash. A node that exists already is left alone when it
// has the right type, and refuses the launch when it does not.
struct MakeDirectory {
    std::string path;
    std::uint32_t mode = 0755;
    std::uint32_t owner = 0;  // host uid and gid
    bool operator==(const MakeDirectory&) const = default;
};
struct MakeSymlink {
    std::string path;
    std::string target;
    bool operator==(const MakeSymlink&) const = default;
};
struct MakeFile {
    std::string path;
    std::string content;
    std::uint32_t mode = 0644;
    std::uint32_t owner = 0;
    bool operator==(const MakeFile&) const = default;
};
// Recursive clone of `source`; nosuid, nodev (recursively, read-only too).
struct BindMount {
    HostPath source;
    std::string target;
    Access access = Access::read_only;
    MountIdMap map;
    Ground ground = Ground::ours;
    bool operator==(const BindMount&) const = default;
};
// never: pages stay in memory, where the kernel knows how (noswap, Linux 6.4).
enum class Swap { allowed, never };
struct TmpfsMount {
    std::string target;
    std::uint64_t size = 0;
    std::uint32_t mode = 0755;
    std::uint32_t owner_uid = 0;
    std::uint32_t owner_gid = 0;
    Access access = Access::read_write;
    Ground ground = Ground::ours;
    Swap swap = Swap::allowed;
    bool operator==(const TmpfsMount&) const = default;
};
// Covers `path` with our own empty file or directory, read-only. `pinned` ancestors inside a
// writable grant are bound onto themselves first: a rename would carry the mask away.
struct MaskPath {
    std::string path;
    std::vector<std::string> pinned;
    Ground ground = Ground::ours;
    HostPath host;  // operators' ground: where the path lies on the host
    bool operator==(const MaskPath&) const = default;
};
// Last step: the root mount becomes read-only.
struct SealRoot {
    bool operator==(const SealRoot&) const = default;
};

using TreeStep = std::variant<RootTmpfs, Overlay, MakeDirectory, MakeSymlink, MakeFile, BindMount,
                              TmpfsMount, MaskPath, SealRoot>;

struct OciArtifact {
    std::string config_json;        // canonical bytes, written and hashed as they are
    std::string config_digest;      // "sha256:…"
    std::vector<TreeStep> steps;    // in order
    std::string bootstrap;  // wire bootstrap record for PID 1, handed over as a sealed memfd
    // As in the plan: written and read back by create_cgroups().
    std::vector<plan::CgroupSetting> workload;
    std::vector<plan::CgroupSetting> control;
    std::vector<std::string> controllers;
    plan::CgroupVersion cgroup_version = plan::CgroupVersion::none;
    // What service_open() will ask of PID 1; argv is empty for an idle sandbox.
    std::vector<std::string> argv;
    GuestPath cwd;
    std::uint32_t umask = 0;
    bool terminal = false;  // of the sandbox's own devpts, made before the gate
    std::optional<Millis> timeout;
    bool operator==(const OciArtifact&) const = default;
};

// Fails when the plan holds what this driver does not express (a bug of the resolver: law 11).
[[nodiscard]] Result<OciArtifact> compile(const plan::ExecutionPlan& plan, const Binding& binding);

// The OPEN that starts the profile's [process]: kind service, gate on, stdio by descriptors (the
// log worker's pipes). Requires: the plan is not idle.
[[nodiscard]] wire::Open service_open(const plan::ExecutionPlan& plan);

// The OPEN of an exec session with the plan's user, environment, cwd, umask and limits: gate on,
// stdio by frames; the caller changes what its user asked for.
[[nodiscard]] wire::Open exec_open(const plan::ExecutionPlan& plan, std::vector<std::string> argv);

// `plan --artifact`: one JSON object (config, steps, bootstrap in hex, cgroup settings).
[[nodiscard]] Result<std::string> render(const OciArtifact& artifact);

}  // namespace sandbox::driver::oci
