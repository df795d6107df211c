// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "wire/messages.hpp"

// What a guest of its own kernel is told beside BOOTSTRAP, on stream 0 of its mux: which tree to
// make of its shares, and its own limits. docs/protocol.md, "Guest machine".
namespace sandbox::wire {

// A virtiofs device, mounted at /shares/TAG of the guest, where only PID 1 is. Read-only is
// enforced on the host's side; said here too, it is enforced twice.
struct MachineShare {
    std::string tag;  // 1 to 36 (virtio 5.11.4), no '/'
    bool read_only = true;
    bool operator==(const MachineShare&) const = default;
};

// The steps of the file tree, in the words of the drivers that build one on the host.
enum class MachineStepKind : std::uint8_t {
    root_tmpfs = 1,  // size, uid; first of all steps, or
    overlay = 2,  // source: the lower layer, size: of the upper tmpfs; target "" is the root
    directory = 3,  // target, mode, uid; one that is there is left alone
    symlink = 4,  // target, source: what it says
    file = 5,  // target, content, mode, uid
    bind = 6,  // source, target, access, ground
    tmpfs = 7,  // target, size, mode, uid, gid, access, ground
    pin = 8,  // target, a folder: bound onto itself, so that no rename carries a mask away
    mask = 9,  // target, ground: covered by an empty file or folder of ours
    seal_root = 10,  // last: the root becomes read-only
};
// Numbers start at 1: a record of zeros is no record.
enum class MachineAccess : std::uint8_t { read_only = 1, read_write = 2 };
// What a mount target lies in: a missing one is made in a tree of ours, and an error elsewhere.
enum class MachineGround : std::uint8_t { ours = 1, operators = 2 };

// Fields that a kind does not name are zero, empty or the first of their enum. Targets are below
// the new root, without a leading slash; sources are absolute paths below /shares.
struct MachineStep {
    MachineStepKind kind = MachineStepKind::directory;
    std::string source;  // 4096
    std::string target;  // 4096
    MachineAccess access = MachineAccess::read_only;
    MachineGround ground = MachineGround::ours;
    std::uint32_t mode = 0;  // at most 07777
    // Of the tree, as root inside sees it: ids are one to one.
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
    std::uint64_t size = 0;  // bytes
    std::string content;  // 65536
    bool operator==(const MachineStep&) const = default;
};

// Written to the file, then read back and compared.
struct MachineLimit {
    std::string file;   // 64: "memory.max"; lower-case letters, digits, '.' and '_'
    std::string value;  // 256: exactly what the file must read back
    bool operator==(const MachineLimit&) const = default;
};

// After BOOTSTRAP, on stream 0. Everything the guest will ever be told of its machine.
struct Machine {
    static constexpr std::uint8_t kType = 0xE1;
    std::uint16_t version = kProtocolVersion;
    std::vector<MachineShare> shares;  // 32
    // 2048. None: sessions see what PID 1 sees, as in a sandbox of the host. Else the guest adds
    // its own /dev and /proc (folders of the tree) before the root is sealed.
    std::vector<MachineStep> steps;
    // Below /proc and /sys, absolute; what is not there is passed over. 64 each.
    std::vector<std::string> masked;
    std::vector<std::string> read_only;
    bool loopback = false;  // `lo` comes up with READY
    // The guest's own cgroup v2, in write order: of all sessions together, and of PID 1. 32 each.
    std::vector<MachineLimit> workload;
    std::vector<MachineLimit> control;
    bool operator==(const Machine&) const = default;
};

}  // namespace sandbox::wire
