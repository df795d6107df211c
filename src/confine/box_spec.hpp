// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <string>
#include <vector>

#include "sys/caps.hpp"
#include "sys/procfs.hpp"

namespace sandbox::confine {

// The kinds of namespaces a box may have of its own.
struct Namespaces {
    bool cgroup = true;
    bool ipc = true;
    bool mount = true;  // always: a box without its own tree is none
    bool net = true;    // false: the caller's network
    bool pid = true;
    bool user = true;
    bool uts = true;
    bool operator==(const Namespaces&) const = default;
};

// How /dev comes by its nodes. bound: the host's own, each alone; where nobody may make nodes, in a
// user namespace that is not the first. Root's they stay, so nothing done inside changes them.
enum class Devices { made, bound };

// What surrounds PID 1 of a sandbox: a value, made from a plan, free of paths and descriptors of
// one host. No default is weaker than what it stands for. The ring of a session is Spec.
struct BoxSpec {
    Namespaces own;
    // Complete maps; the box's root is `inside` 0 and never the caller's. Written by the caller,
    // who needs CAP_SETUID and CAP_SETGID over the outside ids. Empty without a user namespace.
    std::vector<sys::IdMapping> uids;
    std::vector<sys::IdMapping> gids;
    std::uint32_t owner = 0;  // outside id of the box's root: /dev and what lies there is its
    std::string hostname;  // empty leaves the caller's; needs own.uts
    std::uint64_t shm_size = 0;  // bytes of /dev/shm
    Devices devices = Devices::made;
    // Kernel paths, absolute: covered by an empty node, or made read-only. One that this kernel
    // does not have is passed over.
    std::vector<std::string> masked;
    std::vector<std::string> read_only;
    sys::CapSet capabilities = 0;  // of PID 1: bounding, permitted and effective
    std::vector<sock_filter> filter;  // outer ring; empty: no filter is loaded (tests only)
};

}  // namespace sandbox::confine
