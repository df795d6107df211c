// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "sys/cgroup/cgroup.hpp"
#include "sys/file.hpp"

namespace sandbox::sys::cgroup {

namespace {

// Mount options of a v1 hierarchy that are no controllers (kernel/cgroup/cgroup-v1.c,
// cgroup1_show_options), besides name=… and release_agent=….
constexpr std::string_view kNoControllers[] = {
    "rw", "ro", "noprefix", "xattr", "cpuset_v2_mode", "clone_children", "favordynmods"};

bool is_controller(std::string_view option)
{
    // "name=systemd" and "release_agent=…" are no controllers.
    return option.find('=') == std::string_view::npos &&
           std::find(std::begin(kNoControllers), std::end(kNoControllers), option) ==
               std::end(kNoControllers);
}

std::vector<std::string> words(std::string_view text)
{
    std::vector<std::string> found;
    while (!text.empty()) {
        const auto end = std::min(text.find_first_of(" \n"), text.size());
        if (end > 0) found.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    std::sort(found.begin(), found.end());
    return found;
}

Hierarchy first_version(const MountInfo& mount)
{
    Hierarchy hierarchy;
    hierarchy.version = Version::v1;
    hierarchy.mount = mount.target;
    // v1 tells its controllers among the super options, field 11 of mountinfo,
    // proc_pid_mountinfo(5).
    for (const std::string& option : mount.super_options) {
        if (option.starts_with("name=")) hierarchy.name = option.substr(5);
        if (is_controller(option)) hierarchy.controllers.push_back(option);
    }
    std::sort(hierarchy.controllers.begin(), hierarchy.controllers.end());
    return hierarchy;
}

Layout layout_of(bool first, bool second)
{
    if (first && second) return Layout::hybrid;
    if (first) return Layout::v1;
    return second ? Layout::v2 : Layout::none;
}

}  // namespace

std::string_view to_string(Layout layout) noexcept
{
    switch (layout) {
    case Layout::none: return "none";
    case Layout::v1: return "v1";
    case Layout::v2: return "v2";
    case Layout::hybrid: return "hybrid";
    }
    return "none";
}

const Hierarchy* Host::v2() const noexcept
{
    for (const Hierarchy& hierarchy : hierarchies)
        if (hierarchy.version == Version::v2) return &hierarchy;
    return nullptr;
}

const Hierarchy* Host::with(std::string_view controller) const noexcept
{
    const Hierarchy* second = nullptr;
    for (const Hierarchy& hierarchy : hierarchies) {
        const auto& list = hierarchy.controllers;
        if (std::find(list.begin(), list.end(), controller) == list.end()) continue;
        // v1 wins: a controller is in one hierarchy at a time, and v1 has it if it is mounted
        // there.
        if (hierarchy.version == Version::v1) return &hierarchy;
        second = &hierarchy;
    }
    return second;
}

Host detect(const std::vector<MountInfo>& mounts,
            const std::map<std::string, std::string>& v2_controllers)
{
    Host host;
    bool first = false;
    bool second = false;
    bool tmpfs_root = false;
    for (const MountInfo& mount : mounts) {
        if (mount.target == "/sys/fs/cgroup") tmpfs_root = mount.fstype == "tmpfs";
        if (mount.fstype != "cgroup" && mount.fstype != "cgroup2") continue;
        // A later mount on the same target hides the earlier one, also one of the other version.
        std::erase_if(host.hierarchies,
                      [&mount](const Hierarchy& earlier) { return earlier.mount == mount.target; });
        if (mount.fstype == "cgroup") {
            host.hierarchies.push_back(first_version(mount));
            first = true;
            continue;
        }
        Hierarchy hierarchy;
        hierarchy.mount = mount.target;
        // A v2 mount that could not be read has none that we could use.
        const auto listed = v2_controllers.find(mount.target);
        if (listed != v2_controllers.end()) hierarchy.controllers = words(listed->second);
        if (mount.target == "/sys/fs/cgroup/unified")
            host.cover_unified = tmpfs_root && !hierarchy.controllers.empty();
        host.hierarchies.push_back(std::move(hierarchy));
        second = true;
    }
    host.layout = layout_of(first, second);
    return host;
}

Result<Host> detect()
{
    const ProcDir self = TRY(ProcDir::self());
    const auto mounts = TRY(self.mountinfo());
    std::map<std::string, std::string> controllers;
    for (const MountInfo& mount : mounts) {
        if (mount.fstype != "cgroup2") continue;
        // A mount in a folder we may not enter: it counts as without controllers.
        const auto text = read_file(mount.target + "/cgroup.controllers", 4096);
        if (text) controllers[mount.target] = *text;
    }
    return detect(mounts, controllers);
}

}  // namespace sandbox::sys::cgroup
