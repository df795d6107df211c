// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "sys/caps.hpp"
#include "sys/cgroup/cgroup.hpp"
#include "sys/cgroup/walk.hpp"
#include "sys/file.hpp"

namespace sandbox::sys::cgroup {

namespace {

// One control file: the longest is cpuset.cpus of a very large host.
constexpr std::size_t kControlFileLimit = 64U << 10;
// With others that remove a parent while it is made; each is lost to somebody else's end.
constexpr int kMostRaces = 100;

// cgroup v1 makes a cpuset without CPUs and refuses every task until both files are filled
// (admin-guide/cgroup-v1/cpusets.rst).
Status fill_cpuset(int parent, int child)
{
    for (const char* file : {"cpuset.cpus", "cpuset.mems"}) {
        const std::string own = trimmed(TRY(read_file_at(child, file, kControlFileLimit)));
        if (!own.empty()) continue;
        const std::string value = trimmed(TRY(read_file_at(parent, file, kControlFileLimit)));
        TRY_VOID(write_control_at(child, file, value));
    }
    return {};
}

bool has_controller(const Hierarchy& hierarchy, std::string_view controller)
{
    const auto& list = hierarchy.controllers;
    return std::find(list.begin(), list.end(), controller) != list.end();
}

Result<UniqueFd> make_below(const Hierarchy& hierarchy, int parent, const std::string& name)
{
    // There already is fine: the supervisor and a shim may both be first.
    if (::mkdirat(parent, name.c_str(), 0755) != 0 && errno != EEXIST)
        return fail_errno("mkdir", hierarchy.mount + "/…/" + name);
    UniqueFd child = TRY(open_at(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    if (hierarchy.version == Version::v1 && has_controller(hierarchy, "cpuset"))
        TRY_VOID(fill_cpuset(parent, child.get()));
    return child;
}

// Only a cgroup without processes may pass controllers on, the root excepted (it has no
// cgroup.type). The kernel refuses most of them there, but takes some (cpu, cpuset, pids), and
// makes it the root of a threaded subtree instead: no process can be put below any more, whoever
// put it there. So we look before we write.
Status check_vacant(int dir, const std::string& path)
{
    // No cgroup.type: the root, which may have both.
    const auto type = read_file_at(dir, "cgroup.type", kControlFileLimit);
    if (!type) return {};
    if (trimmed(*type) != "domain")
        return fail(Error::from_errno(EOPNOTSUPP, "enable controllers in", path)
                        .with("that cgroup is of the type " + trimmed(*type)));
    const auto members = read_file_at(dir, "cgroup.procs", kControlFileLimit);
    if (members && trimmed(*members).empty()) return {};
    return fail(Error::from_errno(EBUSY, "enable controllers in", path)
                    .with("processes live in that cgroup itself, move them to a child of it or "
                          "choose another cgroup_parent"));
}

Status enable(int dir, const std::string& path, std::span<const std::string> controllers)
{
    const std::string enabled =
        " " + trimmed(TRY(read_file_at(dir, "cgroup.subtree_control", kControlFileLimit))) + " ";
    std::string command;
    // Only what is missing: enabling what is on again can be refused.
    for (const std::string& controller : controllers)
        if (enabled.find(" " + controller + " ") == std::string::npos)
            command += (command.empty() ? "+" : " +") + controller;
    if (command.empty()) return {};
    TRY_VOID(check_vacant(dir, path));
    // One write for all: the kernel takes all of them or none.
    auto written = write_control_at(dir, "cgroup.subtree_control", command);
    if (!written) return fail(std::move(written).error().with("enable " + command + " in " + path));
    return {};
}

std::vector<std::string> components(const std::string& path)
{
    std::vector<std::string> parts;
    std::string_view rest = path;
    while (!rest.empty()) {
        const auto end = std::min(rest.find('/'), rest.size());
        if (end > 0) parts.emplace_back(rest.substr(0, end));
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return parts;
}

Status check_path(const std::string& path)
{
    // A path reaches us from a config: it must not lead out of the hierarchy.
    const auto parts = components(path);
    bool good = path.starts_with('/') && !parts.empty() && path.find('\0') == std::string::npos;
    for (const std::string& part : parts) good = good && part != "." && part != "..";
    if (good) return {};
    return fail(Code::invalid_argument, "not a cgroup path below the root: \"" + path + "\"");
}

struct Wanted {
    const Hierarchy* hierarchy = nullptr;
    std::vector<std::string> controllers;  // of that hierarchy
};

Result<std::vector<Wanted>> wanted_hierarchies(const Host& host,
                                               std::span<const std::string> controllers)
{
    std::set<std::string> names(controllers.begin(), controllers.end());
    if (host.layout == Layout::v1 || host.layout == Layout::hybrid) {
        // Killing needs the freezer, and v1 counts CPU time apart from sharing it.
        names.insert("freezer");
        if (names.contains("cpu") && host.with("cpuacct") != nullptr) names.insert("cpuacct");
    }
    std::vector<Wanted> wanted;
    // A pure v2 host needs the folder even when nothing is limited: it is what is killed.
    if (host.layout == Layout::v2) wanted.push_back(Wanted{host.v2(), {}});
    for (const std::string& name : names) {
        const Hierarchy* hierarchy = host.with(name);
        if (hierarchy == nullptr)
            return fail(Code::unavailable, "no cgroup hierarchy of this host has the controller " +
                                               name + ": mount it or drop the limit");
        const auto known = std::find_if(wanted.begin(), wanted.end(), [&](const Wanted& one) {
            return one.hierarchy == hierarchy;
        });
        // One folder for each hierarchy, however many of its controllers are wanted.
        if (known == wanted.end())
            wanted.push_back(Wanted{hierarchy, {name}});
        else
            known->controllers.push_back(name);
    }
    return wanted;
}

Result<UniqueFd> make_path_once(const Wanted& wanted, const std::vector<std::string>& parts)
{
    const Hierarchy& hierarchy = *wanted.hierarchy;
    UniqueFd dir = TRY(open_dir(hierarchy.mount));
    std::string path = hierarchy.mount;
    for (const std::string& part : parts) {
        // Top-down: a controller can only be enabled below where it is enabled itself.
        if (hierarchy.version == Version::v2) TRY_VOID(enable(dir.get(), path, wanted.controllers));
        // By descriptor from step to step: no ancestor is looked up twice.
        dir = TRY(make_below(hierarchy, dir.get(), part));
        path += "/" + part;
    }
    return dir;
}

Result<UniqueFd> make_path(const Wanted& wanted, const std::vector<std::string>& parts)
{
    // Whoever ends last below a parent removes that, too, and may do so between two steps of ours:
    // a folder that is gone makes nothing (ENOENT), and its files take nothing (ENODEV).
    for (int left = kMostRaces;; --left) {
        auto made = make_path_once(wanted, parts);
        if (made || left == 0) return made;
        const int errnum = made.error().errnum();
        if (errnum != ENOENT && errnum != ENODEV) return made;
    }
}

}  // namespace

std::vector<int> JoinHandles::task_numbers() const
{
    std::vector<int> numbers;
    for (const UniqueFd& fd : tasks) numbers.push_back(fd.get());
    return numbers;
}

Result<CgroupTree> CgroupTree::create(const Host& host, const std::string& path,
                                      std::span<const std::string> controllers)
{
    TRY_VOID(check_path(path));
    std::vector<Dir> dirs;
    for (const Wanted& wanted : TRY(wanted_hierarchies(host, controllers))) {
        Dir dir{*wanted.hierarchy, wanted.hierarchy->mount + path, {}};
        dir.fd = TRY_WITH(make_path(wanted, components(path)), "make cgroup " + dir.path);
        dirs.push_back(std::move(dir));
    }
    return CgroupTree(path, std::move(dirs));
}

Result<CgroupTree> CgroupTree::find(const Host& host, const std::string& path)
{
    TRY_VOID(check_path(path));
    std::vector<Dir> dirs;
    for (const Hierarchy& hierarchy : host.hierarchies) {
        // O_NOFOLLOW in last place; what lies above is cgroupfs and has no links.
        auto fd = open_file(hierarchy.mount + path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
        if (fd)
            dirs.push_back(Dir{hierarchy, hierarchy.mount + path, *std::move(fd)});
        else if (fd.error().errnum() != ENOENT)
            return std::unexpected(std::move(fd).error());
    }
    return CgroupTree(path, std::move(dirs));
}

Result<CgroupTree> CgroupTree::make_child(const std::string& name) const
{
    TRY_VOID(check_path("/" + name));
    if (components(name).size() != 1)
        return fail(Code::invalid_argument, "a cgroup name has no slash: " + name);
    std::vector<Dir> dirs;
    for (const Dir& dir : dirs_) {
        Dir child{dir.hierarchy, dir.path + "/" + name, {}};
        child.fd = TRY_WITH(make_below(dir.hierarchy, dir.fd.get(), name),
                            "make cgroup " + child.path);
        dirs.push_back(std::move(child));
    }
    return CgroupTree(path_ + "/" + name, std::move(dirs));
}

std::vector<std::string> CgroupTree::folders() const
{
    std::vector<std::string> paths;
    for (const Dir& dir : dirs_) paths.push_back(dir.path);
    return paths;
}

std::vector<DirIdentity> CgroupTree::identities() const
{
    std::vector<DirIdentity> found;
    for (const Dir& dir : dirs_) {
        // A folder that cannot be read has no identity; the ledger then knows it by name.
        const auto identity = identity_of_fd(dir.fd.get());
        if (identity) found.push_back(DirIdentity{dir.path, *identity});
    }
    return found;
}

const CgroupTree::Dir* CgroupTree::dir_of(std::string_view controller) const noexcept
{
    const Dir* second = nullptr;
    for (const Dir& dir : dirs_) {
        // "cgroup" names the core files of v2, which belong to no controller.
        const bool core = controller == "cgroup" && dir.hierarchy.version == Version::v2;
        if (!core && !has_controller(dir.hierarchy, controller)) continue;
        if (dir.hierarchy.version == Version::v1) return &dir;
        second = &dir;
    }
    return second;
}

Status CgroupTree::enable_for_children(std::span<const std::string> controllers) const
{
    for (const Dir& dir : dirs_) {
        if (dir.hierarchy.version != Version::v2) continue;
        std::vector<std::string> own;
        // Only those of this hierarchy: in hybrid layouts the list is of both.
        for (const std::string& name : controllers)
            if (has_controller(dir.hierarchy, name)) own.push_back(name);
        TRY_VOID(enable(dir.fd.get(), dir.path, own));
    }
    return {};
}

Result<std::string> CgroupTree::read(const std::string& controller, const std::string& file) const
{
    const Dir* dir = dir_of(controller);
    if (dir == nullptr)
        return fail(Code::unavailable, "cgroup " + path_ + " has no controller " + controller);
    return trimmed(TRY_WITH(read_file_at(dir->fd.get(), file, kControlFileLimit), dir->path));
}

Status CgroupTree::set(std::span<const Setting> settings) const
{
    for (const Setting& setting : settings) {
        const Dir* dir = dir_of(setting.controller);
        if (dir == nullptr)
            return fail(Code::unavailable,
                        "cgroup " + path_ + " has no controller " + setting.controller);
        auto written = write_control_at(dir->fd.get(), setting.file, setting.value);
        if (!written)
            return fail(std::move(written).error().with("set " + dir->path + "/" + setting.file +
                                                        " to " + setting.value));
    }
    // Read back after all were written: a later one may change an earlier one.
    return verify(settings);
}

Status CgroupTree::verify(std::span<const Setting> settings) const
{
    for (const Setting& setting : settings) {
        const std::string found = TRY(read(setting.controller, setting.file));
        if (found != setting.value)
            return fail(Code::conflict, "cgroup " + path_ + ": " + setting.file + " reads " +
                                            found + ", planned is " + setting.value);
    }
    return {};
}

Status CgroupTree::chown_procs(uid_t uid, gid_t gid) const
{
    for (const Dir& dir : dirs_) {
        if (dir.hierarchy.version != Version::v2) continue;
        // Not followed: cgroupfs has no links, and another file system at this place must not be
        // changed.
        if (::fchownat(dir.fd.get(), "cgroup.procs", uid, gid, AT_SYMLINK_NOFOLLOW) != 0)
            return fail_errno("fchownat", dir.path + "/cgroup.procs");
    }
    return {};
}

Result<JoinHandles> CgroupTree::join_handles() const
{
    JoinHandles handles;
    for (const Dir& dir : dirs_) {
        // There is one v2 hierarchy at most.
        if (dir.hierarchy.version == Version::v2)
            handles.dir = TRY(duplicate(dir.fd.get()));
        else
            // Opened by us: v1 judges the credentials of whoever opened it, so the child may be
            // unprivileged when it writes.
            handles.tasks.push_back(TRY(open_at(dir.fd.get(), "tasks", O_WRONLY)));
    }
    return handles;
}

namespace {

// This thread's effective uid alone, by the system call: glibc's would ask other threads too.
Status take_effective(uid_t uid)
{
    constexpr auto kKeep = static_cast<uid_t>(-1);
    if (::syscall(SYS_setresuid, kKeep, uid, kKeep) != 0) return fail_errno("setresuid");
    return {};
}

}  // namespace

Result<JoinHandles> CgroupTree::join_handles_as(uid_t uid) const
{
    for (const Dir& dir : dirs_) {
        if (dir.hierarchy.version == Version::v2) continue;
        if (::fchownat(dir.fd.get(), "tasks", uid, static_cast<gid_t>(-1), AT_SYMLINK_NOFOLLOW) !=
            0)
            return fail_errno("fchownat", dir.path + "/tasks");
    }
    const uid_t before = ::geteuid();
    const CapState caps = TRY(get_caps());
    TRY_VOID(take_effective(uid));
    // Another effective uid takes the effective capabilities; the folders are ours alone to search.
    const int errnum = apply_caps(caps);
    auto handles = errnum == 0 ? join_handles()
                               : Result<JoinHandles>{fail(
                                     Error::from_errno(errnum, "capset", "tasks of " + path_))};
    // Never on with another's id: what follows would be done as the sandbox's root.
    if (auto back = take_effective(before); !back) return fail(std::move(back).error());
    return handles;
}

}  // namespace sandbox::sys::cgroup
