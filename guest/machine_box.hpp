// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "sys/fd.hpp"
#include "wire/machine.hpp"

namespace sandbox::guest {

// The namespaces in which everything of a guest runs but its PID 1: mount (with the tree of `machine`
// as its root), pid, ipc, uts, net and cgroup. Made and held open by a process that does nothing else
// and is the first of the pid namespace; PID 1 joins them, all but the pid namespace, which its
// children are born in. So no workload sees PID 1, and its root has no way to it.
//
// PRIVILEGED, in the initrd's root, once. On failure the machine is good for nothing.
struct MachineBox {
    // What is in force, name and value, as read back.
    std::vector<std::pair<std::string, std::string>> report;
    // /proc as PID 1 has to see it: that of the tree is the box's, and does not show PID 1.
    sys::UniqueFd proc;
};
[[nodiscard]] Result<MachineBox> enter_box(const wire::Machine& machine);

}  // namespace sandbox::guest
