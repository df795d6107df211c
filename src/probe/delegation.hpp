// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "sys/cgroup/cgroup.hpp"

// Where an ordinary user may make cgroups: what systemd delegates (systemd.resource-control(5),
// Delegate=), or what root gave away by chown.
namespace sandbox::probe {

struct Delegation {
    std::string path;    // below the hierarchy roots; empty: none
    std::string reason;  // why that one, or why none
    bool operator==(const Delegation&) const = default;
};

// What the choice rests on, so that it is a function of values.
struct CgroupView {
    sys::cgroup::Host host;
    std::vector<sys::CgroupLine> own;  // of this process
    std::uint32_t uid = 0;
    // Of a folder below a mount: may this user make cgroups there and move processes in?
    std::map<std::string, bool> writable;
    // v2: given to this user to divide, and not to a manager of its own (systemd's units).
    std::map<std::string, bool> given;
    // v2: no process is in it but this one, or none.
    std::map<std::string, bool> vacant;
};

// v1: the cgroup of this process, if it is the same and the user's own in every hierarchy that a launch
// needs. v2: the nearest cgroup upwards from it that was given to the user and holds no process itself
// (only such a one passes controllers on); this process alone in one counts as none, since it can step
// aside.
Delegation choose_delegation(const CgroupView& view);

// Reads only.
[[nodiscard]] Delegation find_delegation();

// systemd marks what it delegated on the folder (systemd.resource-control(5), Delegate=).
bool is_delegated(const std::string& folder);

// v2: when this process is alone in the cgroup `path`, it goes to PATH/caller. Else, and on v1, nothing.
[[nodiscard]] Status step_aside(const std::string& path);

}  // namespace sandbox::probe
