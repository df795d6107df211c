// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "driver/driver.hpp"
#include "driver/oci/compile.hpp"
#include "plan/plan.hpp"
#include "sys/fd.hpp"

// Where bare runtimes find the same container as ours: the driver's own file tree and config.json
// in a mount namespace made once, outside of what is timed.
namespace sandbox::bench {

struct Stage {
    sys::UniqueFd mount_namespace;
    std::string crun_bundle;    // paths in that namespace
    std::string crun_session_bundle;  // the same container with nothing to do, for `crun exec`
    std::string podman_rootfs;
    std::string state;          // for a runtime's --root
    std::string cgroup;         // "/sandbox-bench-PID": below it runtimes make their cgroups
};

[[nodiscard]] Result<Stage> make_stage(const plan::ExecutionPlan& plan,
                                       const driver::Binding& binding,
                                       const driver::oci::OciArtifact& artifact,
                                       const std::vector<std::string>& argv);

// crun leaves the parents of its cgroup behind, in every hierarchy; podman its own.
// Returns what could not be removed.
std::vector<std::string> remove_cgroups(const std::string& cgroup);

}  // namespace sandbox::bench
