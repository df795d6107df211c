// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cerrno>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "probe/tasks.hpp"
#include "sys/fd.hpp"
#include "sys/file.hpp"
#include "sys/mount.hpp"

namespace sandbox::probe {

namespace {

namespace name = facts::name;

// Enough for a few files; it counts as memory.
constexpr std::uint64_t kTrialSize = 1U << 20;
// Covered in the child's own mount namespace: the host's /tmp is not touched.
constexpr const char* kTrial = "/tmp";

Status make_scratch()
{
    // First: nothing of the following may reach the host's namespace.
    TRY_VOID(sys::make_all_private());
    const auto scratch = TRY(sys::make_tmpfs(kTrialSize, 0700, {}));
    return sys::attach_tree(scratch.get(), AT_FDCWD, kTrial);
}

std::string in_trial(std::string_view path) { return fmt::format("{}/{}", kTrial, path); }

// A lower file is hidden by a whiteout and an upper file written: what a writable root needs.
Result<std::string> try_overlay()
{
    for (const char* folder : {"lower", "upper", "work", "merged"}) {
        TRY_VOID(sys::mkdir_at(AT_FDCWD, in_trial(folder)));
    }
    TRY_VOID(sys::write_file_at(AT_FDCWD, in_trial("lower/file"), "lower", 0600));
    const auto overlay = TRY(
        sys::make_overlay({in_trial("lower")}, in_trial("upper"), in_trial("work"), {}));
    TRY_VOID(sys::attach_tree(overlay.get(), AT_FDCWD, in_trial("merged")));
    TRY_VOID(sys::unlink_at(AT_FDCWD, in_trial("merged/file")));
    TRY_VOID(sys::write_file_at(AT_FDCWD, in_trial("merged/new"), "upper", 0600));
    // Lower must be whole: an overlay that wrote through would corrupt a shared image. The new file
    // must be in upper, or it was written nowhere.
    struct stat seen{};
    if (stat(in_trial("lower/file").c_str(), &seen) != 0) return fail_errno("stat", "lower/file");
    if (stat(in_trial("upper/new").c_str(), &seen) != 0) return fail_errno("stat", "upper/new");
    return std::string("tmpfs upper: lower file removed by whiteout, new file went to upper");
}

// The namespace maps inside id 0 to `settings.id_base`: a file of host root must show as the
// overflow id or as id_base, never as root.
Result<std::string> try_idmap(const ProbeSettings& settings, int dir, const std::string& path)
{
    const std::vector<sys::IdMapping> map{{0, settings.id_base, 65536}};
    const auto users = TRY(sys::make_user_namespace(map, map));
    const auto tree = TRY(sys::clone_tree(dir, path, sys::Depth::single));
    // After the clone and before attaching: only a fresh, detached mount takes an idmap.
    TRY_VOID(sys::set_mount_attributes(tree.get(), {.userns_fd = users.get()}, sys::Depth::single));
    struct stat plain{};
    struct stat mapped{};
    if (fstatat(dir, path.c_str(), &plain, 0) != 0) return fail_errno("stat", path);
    if (fstat(tree.get(), &mapped) != 0) return fail_errno("fstat", path);
    // Only where it can be told: a file of another owner says nothing about root's.
    if (plain.st_uid == 0 && mapped.st_uid != settings.id_base) {
        return fail(Code::unavailable,
                    fmt::format("{}: owner 0 shows as {} through the idmapped mount, wanted {}",
                                path, mapped.st_uid, settings.id_base));
    }
    return fmt::format("{}: owner {} shows as {}", path, plain.st_uid, mapped.st_uid);
}

Finding check_idmap(const ProbeSettings& settings)
{
    // /usr stands for the root file system, the scratch for a tmpfs: both are bound in launches.
    const auto root = try_idmap(settings, AT_FDCWD, "/usr");
    const auto scratch = try_idmap(settings, AT_FDCWD, kTrial);
    if (!root) return missing("the file system of /usr: " + root.error().message());
    std::string evidence = "mount_setattr(IDMAP) " + *root;
    // A tmpfs without idmaps is worth saying, and stops nothing.
    evidence += scratch ? "; tmpfs " + *scratch : "; tmpfs: " + scratch.error().message();
    return found("yes", evidence);
}

// The flag must reach a mount below the one it is set on.
Result<std::string> try_recursive_read_only()
{
    TRY_VOID(sys::mkdir_at(AT_FDCWD, in_trial("tree")));
    TRY_VOID(sys::mkdir_at(AT_FDCWD, in_trial("tree/sub")));
    const auto inner = TRY(sys::make_tmpfs(kTrialSize, 0700, {}));
    TRY_VOID(sys::attach_tree(inner.get(), AT_FDCWD, in_trial("tree/sub")));
    const auto tree = TRY(sys::clone_tree(AT_FDCWD, in_trial("tree"), sys::Depth::recursive));
    TRY_VOID(sys::set_mount_attributes(
        tree.get(), {.read_only = true, .no_suid = true, .no_dev = true}, sys::Depth::recursive));
    const auto written = sys::write_file_at(tree.get(), "sub/file", "x", 0600);
    // Through the recursive tree: the flag is on its root, the write goes to the mount below.
    if (written) return fail(Code::unavailable, "a submount stayed writable");
    if (written.error().errnum() != EROFS) return fail(written.error());
    return std::string("mount_setattr(RDONLY, recursive): a submount answers EROFS");
}

// As root the child has a mount namespace of its own already; an ordinary user's comes with a user
// namespace, as in a launch. One id is enough to mount.
Status enter_namespaces()
{
    const uid_t uid = geteuid();
    const gid_t gid = getegid();
    if (uid == 0) return {};
    TRY_VOID(sys::unshare_namespaces(CLONE_NEWUSER | CLONE_NEWNS));
    // user_namespaces(7): without it no one but a privileged writer may map a group.
    TRY_VOID(sys::write_control_at(AT_FDCWD, "/proc/self/setgroups", "deny"));
    TRY_VOID(sys::write_control_at(AT_FDCWD, "/proc/self/uid_map", fmt::format("0 {} 1", uid)));
    return sys::write_control_at(AT_FDCWD, "/proc/self/gid_map", fmt::format("0 {} 1", gid));
}

void check_mounts(const Reporter& out, const ProbeSettings& settings)
{
    Status scratch = enter_namespaces();
    if (scratch) scratch = make_scratch();
    if (!scratch) {
        const Finding gap = missing("scratch tmpfs: " + scratch.error().message());
        for (const auto fact : {name::kOverlayfs, name::kIdmappedMount, name::kRecursiveReadOnly}) {
            out.report(fact, gap);
        }
        return;
    }
    const auto overlay = try_overlay();
    out.report(name::kOverlayfs,
               overlay ? found("yes", *overlay) : missing(overlay.error().message()));
    out.report(name::kIdmappedMount, check_idmap(settings));
    const auto read_only = try_recursive_read_only();
    out.report(name::kRecursiveReadOnly,
               read_only ? found("yes", *read_only) : missing(read_only.error().message()));
}

}  // namespace

Task mount_task(const ProbeSettings& settings)
{
    Task task;
    task.label = "mounts";
    task.names = {name::kOverlayfs, name::kIdmappedMount, name::kRecursiveReadOnly};
    task.body = [settings](const Reporter& out) { check_mounts(out, settings); };
    return task;
}

}  // namespace sandbox::probe
