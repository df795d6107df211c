// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "driver/driver.hpp"

// The file tree of a sandbox on this host, as data. Built by a launcher in a mount namespace of its
// own, so that every source is opened once by descriptor and every target is resolved beneath the
// tree. Shared by the drivers that show the host's files directly; a guest gets shares instead.
namespace sandbox::driver {

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
    std::uint64_t size = 0;  // bytes
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

// Pure. Fails when the plan holds what a tree does not express (a bug of the resolver: law 1).
[[nodiscard]] Result<std::vector<TreeStep>> compile_tree(const plan::ExecutionPlan& plan,
                                                         const Binding& binding);

}  // namespace sandbox::driver
