// SPDX-License-Identifier: Apache-2.0
#include "probe/delegation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "sys/fd.hpp"
#include "sys/file.hpp"

namespace sandbox::probe {

namespace {

namespace cgroup = sys::cgroup;

// What no launch does without: limits on memory and processes, and on v1 a way to stop all at once.
constexpr std::array<std::string_view, 3> kNeeded{"freezer", "memory", "pids"};
constexpr std::size_t kProcsLimit = 64U << 10;  // more than a line is "not alone"
constexpr const char* kAside = "/caller";

bool holds(const std::map<std::string, bool>& known, const std::string& folder)
{
    const auto found = known.find(folder);
    return found != known.end() && found->second;
}

std::string own_path(const std::vector<sys::CgroupLine>& lines, std::string_view controller)
{
    for (const sys::CgroupLine& line : lines) {
        const bool here = controller.empty() ? line.hierarchy == 0
                                             : std::ranges::find(line.controllers, controller) !=
                                                   line.controllers.end();
        if (here) return line.path;
    }
    return {};
}

std::string above(const std::string& path)
{
    const auto slash = path.rfind('/');
    return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

Delegation choose_first_version(const CgroupView& view)
{
    std::string path;
    for (const std::string_view controller : kNeeded) {
        const cgroup::Hierarchy* hierarchy = view.host.with(controller);
        if (hierarchy == nullptr)
            return {{}, fmt::format("no hierarchy has the {} controller", controller)};
        const bool first = hierarchy->version == cgroup::Version::v1;
        const std::string own = own_path(view.own, first ? controller : "");
        const std::string folder = hierarchy->mount + own;
        if (own.size() <= 1 || !holds(view.writable, folder))
            return {{},
                    fmt::format("{}, the cgroup of this process, is not writable for uid {}",
                                folder, view.uid)};
        if (!path.empty() && own != path)
            return {{},
                    fmt::format("this process is in {} and, for {}, in {}", path, controller, own)};
        path = own;
    }
    return {path, "this process is in it, and it is this user's in each hierarchy"};
}

Delegation choose_second_version(const CgroupView& view)
{
    const std::string& mount = view.host.v2()->mount;
    const std::string own = own_path(view.own, "");
    if (own.size() <= 1 || !holds(view.writable, mount + own))
        return {{},
                fmt::format("{}, the cgroup of this process, is not writable for uid {}",
                            mount + own, view.uid)};
    for (std::string path = own; path.size() > 1 && holds(view.writable, mount + path);
         path = above(path)) {
        if (holds(view.given, mount + path) && holds(view.vacant, mount + path))
            return {path, "this user's, and no other process is in it"};
    }
    return {
        {},
        fmt::format("neither {}, the cgroup of this process, nor one above it was given to uid {} "
                    "and holds no other process: only an empty one passes controllers on",
                    mount + own, view.uid)};
}

bool is_own(const std::string& folder)
{
    struct stat status{};
    if (stat(folder.c_str(), &status) != 0 || status.st_uid != geteuid()) return false;
    // Delegation is the folder with these files (cgroups(7)); v1 has "tasks" for the first.
    const bool second = access((folder + "/cgroup.subtree_control").c_str(), F_OK) == 0;
    const std::string members = folder + (second ? "/cgroup.procs" : "/tasks");
    return access(folder.c_str(), W_OK) == 0 && access(members.c_str(), W_OK) == 0 &&
           (!second || access((folder + "/cgroup.subtree_control").c_str(), W_OK) == 0);
}

// Marked by systemd, or given by chown: then the first on the way up that is not the user's ends it.
// What lies between belongs to whoever manages it, and systemd's own for a user has its init.scope.
bool is_given(const std::string& folder)
{
    if (access((folder + "/init.scope").c_str(), F_OK) == 0) return false;
    return is_delegated(folder) || !is_own(above(folder));
}

bool is_vacant(const std::string& folder)
{
    const auto members = sys::read_file(folder + "/cgroup.procs", kProcsLimit);
    return members && (members->empty() || *members == std::to_string(getpid()) + "\n");
}

}  // namespace

Delegation choose_delegation(const CgroupView& view)
{
    switch (view.host.layout) {
    case cgroup::Layout::none: return {{}, "no cgroup file system is mounted"};
    case cgroup::Layout::v2: return choose_second_version(view);
    case cgroup::Layout::v1:
    case cgroup::Layout::hybrid: return choose_first_version(view);
    }
    return {};
}

bool is_delegated(const std::string& folder)
{
    char value = 0;
    // trusted.* where the kernel supports it and we may read it, user.* where not.
    for (const char* attribute : {"trusted.delegate", "user.delegate"}) {
        if (getxattr(folder.c_str(), attribute, &value, 1) == 1 && value == '1') return true;
    }
    return false;
}

Delegation find_delegation()
{
    auto host = cgroup::detect();
    if (!host) return {{}, host.error().message()};
    const auto self = sys::ProcDir::self();
    auto own = self ? self->cgroup() : Result<std::vector<sys::CgroupLine>>{fail(self.error())};
    if (!own) return {{}, own.error().message()};
    CgroupView view{*std::move(host), *std::move(own), geteuid(), {}, {}};
    for (const cgroup::Hierarchy& hierarchy : view.host.hierarchies) {
        for (const sys::CgroupLine& line : view.own) {
            for (std::string path = line.path; path.size() > 1; path = above(path)) {
                const std::string folder = hierarchy.mount + path;
                view.writable[folder] = is_own(folder);
                if (!view.writable[folder]) break;
                view.given[folder] = is_given(folder);
                view.vacant[folder] = is_vacant(folder);
            }
        }
    }
    return choose_delegation(view);
}

Status step_aside(const std::string& path)
{
    const auto host = TRY(cgroup::detect());
    if (host.layout != cgroup::Layout::v2) return {};
    const auto self = TRY(sys::ProcDir::self());
    if (own_path(TRY(self.cgroup()), "") != path) return {};
    const std::string folder = host.v2()->mount + path + kAside;
    if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return fail_errno("mkdir", folder);
    const auto members = TRY(sys::open_file(folder + "/cgroup.procs", O_WRONLY));
    return sys::write_all(members.get(), "0");
}

}  // namespace sandbox::probe
