// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "driver/oci/compile.hpp"
#include "sys/cgroup/cgroup.hpp"

namespace sandbox::driver::oci {

// All that the launching child needs, laid out before the fork. Numbers are the parent's.
struct RuntimeStart {
    const OciArtifact& artifact;
    const Binding& binding;
    PreparedSources sources;
    const sys::cgroup::Host& host;
    int input = -1;  // an empty pipe: crun gives its streams to the container's root by fchown,
    int output = -1;  // which on a /dev/null would change the host's (seen with 1.8.1)
    int channel = -1;  // becomes 3
    int init = -1;  // becomes 4
    int bootstrap = -1;  // becomes 5
    int runtime = -1;
    std::vector<int> top_tasks;  // v1: `tasks` of <id>
    std::vector<int> control_tasks;  // v1: `tasks` of <id>/control
    int control_dir = -1;  // v2
    pid_t shim = -1;  // whose death ends the launching child
    int left = -1;  // v2: takes the pid of the process that became the runtime in the leaf
};

// The launching child: cgroups, namespaces, file tree, bundle, then crun in its place. A failure
// is written to `output` and ends with status 125.
[[noreturn]] void run_runtime(RuntimeStart order);

}  // namespace sandbox::driver::oci
