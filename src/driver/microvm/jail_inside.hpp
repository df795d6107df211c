// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <linux/filter.h>

#include <string_view>
#include <vector>

#include "driver/microvm/jail.hpp"

// What happens in a jail before its program runs. Private to jail.
namespace sandbox::driver::microvm {

// The one word of the program's process before it becomes the program; anything else that comes over
// `report` is what failed. The socket closes on exec.
inline constexpr std::string_view kReady = "ready";

struct JailStart {
    const JailSpec& spec;
    std::vector<sys::UniqueFd> mounts;  // detached, one for each of spec.binds
    std::vector<sock_filter> filter{};  // empty: none
    sys::UniqueFd user_namespace;
    sys::UniqueFd lifeline{};
    sys::UniqueFd report{};  // seqpacket
    std::vector<int> keeper_tasks{};  // v1, to join
    std::vector<int> program_tasks{};  // v1
    int program_dir = -1;  // v2
};

// PID 1 of the jail, in its namespaces and still root: makes the tree, starts the program, drops
// everything and waits for one of both ends.
[[noreturn]] void run_keeper(JailStart start);

}  // namespace sandbox::driver::microvm
