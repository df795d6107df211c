// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/filter.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "sys/caps.hpp"
#include "sys/landlock.hpp"
#include "sys/rlimit.hpp"

namespace sandbox::confine {

// Everything that is applied to one session child between fork and exec. A value: no default is
// weaker than what it stands for (no capability, no group, no new privilege).
struct Spec {
    std::vector<int> cgroup_tasks;  // v1 `tasks` descriptors; empty when born in its cgroup (v2)
    bool new_session = true;        // setsid
    bool controlling_terminal = false;  // stdin, a terminal, becomes the session's own
    std::vector<sys::Rlimit> rlimits;
    std::uint32_t umask = 0022;
    uid_t uid = 65534;
    gid_t gid = 65534;
    std::vector<gid_t> groups;      // supplementary; empty clears them
    sys::CapSet capabilities = 0;   // kept: bounding, permitted, effective, inheritable, ambient
    std::string cwd = "/";          // entered with the final ids
    sys::LandlockRules landlock;    // abi 0: not applied
    std::vector<sock_filter> bpf;   // empty: no filter is loaded (tests of single steps only)
};

}  // namespace sandbox::confine
