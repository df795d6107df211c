// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "facts/facts.hpp"
#include "probe/child.hpp"
#include "probe/probe.hpp"

// The checks, one function a subject. Each task leaves nothing behind when its child is gone,
// cgroups excepted: `sweep_cgroups` removes those. Every fact that a task names is reported or
// becomes a gap.
namespace sandbox::probe {

Task namespace_task(const ProbeSettings& settings);    // namespaces and id ranges
Task confinement_task();                               // seccomp, Landlock, pidfd, memfd
Task mount_task(const ProbeSettings& settings);        // overlay, idmap, recursive read-only
Task cgroup_task(const ProbeSettings& settings, std::string probe_cgroup);
Task kvm_task(const ProbeSettings& settings);
Task runtime_task(const ProbeSettings& settings);      // crun: identity, descriptors, cover
Task program_task(const ProbeSettings& settings);      // sandbox-init, sandbox-shim, guest files
Task vmm_task(const ProbeSettings& settings);          // QEMU: identity

// Read in the caller: files of /proc and /sys, helper paths.
std::map<std::string, facts::Fact> host_facts();

// The path that sandboxes will live below, and why: the operator's wish, else a delegated unit of
// ours, else "/sandbox".
struct CgroupParent {
    std::string path;
    std::string reason;
};
CgroupParent choose_cgroup_parent(const ProbeSettings& settings);

// Name of this probe's own cgroup: a sibling of what launches use, so that no launch sees its
// parent come and go.
std::string probe_cgroup_path(const std::string& parent);
// Removes `probe_cgroup` and those of probes whose process is gone.
void sweep_cgroups(const std::string& probe_cgroup);

// driver.microvm, from the facts it rests on: pure.
Finding judge_microvm(const ProbeSettings& settings,
                      const std::map<std::string, facts::Fact>& facts);

// Whether a driver can be used follows from the other facts: pure.
void derive_drivers(const ProbeSettings& settings, std::map<std::string, facts::Fact>& facts);

}  // namespace sandbox::probe
