// SPDX-License-Identifier: Apache-2.0
#include "guest/machine_tree.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/diagnostic.hpp"
#include "confine/box.hpp"
#include "sys/file.hpp"
#include "sys/mount.hpp"

namespace sandbox::guest {
namespace {

using wire::MachineAccess;
using wire::MachineGround;
using wire::MachineStep;
using wire::MachineStepKind;

// Names below the initrd's root, which no path of the workload's root leads to.
constexpr const char* kScratch = "/scratch";
constexpr const char* kRoot = "root";
constexpr const char* kShares = "/shares";
// Folders and roots that belong to root inside: others may look and not write.
constexpr std::uint32_t kOwnerOnly = 0755;
constexpr std::uint64_t kSharedMemory = 64U << 20;  // /dev/shm, as containers have it
constexpr std::uint64_t kMaskSize = 16384;  // two nodes and nothing else, ever

// nosuid and nodev on every mount of the tree: the plan promises it, and a set-id bit on a share
// would be the host's.
sys::MountAttributes tree_flags(MachineAccess access = MachineAccess::read_write)
{
    sys::MountAttributes attributes;
    attributes.no_suid = true;
    attributes.no_dev = true;
    attributes.read_only = access == MachineAccess::read_only;
    return attributes;
}

// Paths of steps are relative to the tree's root and in normal form; wire has checked.
std::string parent_of(const std::string& path)
{
    const auto slash = path.rfind('/');
    return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

Status own(int dir, const std::string& name, std::uint32_t uid, std::uint32_t gid)
{
    // A link itself, not what it names.
    const int flags = name.empty() ? AT_EMPTY_PATH : AT_SYMLINK_NOFOLLOW;
    if (::fchownat(dir, name.c_str(), uid, gid, flags) != 0) return fail_errno("fchownat", name);
    return {};
}

class TreeBuilder {
public:
    Status run(const MachineStep& step)
    {
        // Exhaustive: the compiler names this place when a kind is added.
        switch (step.kind) {
        case MachineStepKind::root_tmpfs: return make_root(step);
        case MachineStepKind::overlay: return make_overlay(step);
        case MachineStepKind::directory: return make_directory(step);
        case MachineStepKind::symlink: return make_symlink(step);
        case MachineStepKind::file: return make_file(step);
        case MachineStepKind::bind: return bind(step);
        case MachineStepKind::tmpfs: return make_tmpfs(step);
        case MachineStepKind::pin: return pin(step.target);
        case MachineStepKind::mask: return mask(step);
        // Only noted: steps after it still write.
        case MachineStepKind::seal_root: sealed_ = true; return {};
        }
        return fail(Code::internal, "a step of no kind");
    }

    // Mounts of this kernel's own, over folders of the tree; then the root is as it will be.
    Status finish(const wire::Machine& machine)
    {
        // corrupt: the record is the host's mistake.
        if (!root_.valid()) return fail(Code::corrupt, "no step made a root");
        confine::BoxSpec kernel;
        kernel.shm_size = kSharedMemory;
        kernel.masked = machine.masked;
        kernel.read_only = machine.read_only;
        // After all steps: nothing of a step may lie on them.
        TRY_VOID(confine::furnish(kernel, root_.get()));
        if (!sealed_) return {};
        // The root's own mount only: writable mounts in it stay writable.
        return sys::set_mount_attributes(root_.get(), tree_flags(MachineAccess::read_only),
                                         sys::Depth::single);
    }

    int root() const noexcept { return root_.get(); }

    Status begin()
    {
        // Before anything is cloned: shared mounts would copy themselves.
        TRY_VOID(sys::make_all_private());
        TRY_VOID(sys::make_dirs(kScratch));
        // A mount of its own: trees are moved and cloned from here, which the initrd's root
        // forbids. 1 MiB: folders only, files of the tree are on mounts of their own.
        const auto scratch = TRY(sys::make_tmpfs(1U << 20, 0700, tree_flags()));
        TRY_VOID(sys::attach_tree(scratch.get(), AT_FDCWD, kScratch));
        scratch_ = TRY(sys::open_dir(kScratch));
        return sys::mkdir_at(scratch_.get(), kRoot);
    }

private:
    Status make_root(const MachineStep& step)
    {
        const auto mount = TRY(sys::make_tmpfs(step.size, kOwnerOnly, tree_flags()));
        // One id for owner and group: only tmpfs steps have a gid.
        TRY_VOID(own(mount.get(), "", step.uid, step.uid));
        return attach_root(mount.get());
    }

    Status attach_root(int mount)
    {
        TRY_VOID(sys::attach_tree(mount, scratch_.get(), kRoot));
        root_ = TRY(sys::open_at(scratch_.get(), kRoot, O_PATH | O_DIRECTORY));
        return {};
    }

    Status make_overlay(const MachineStep& step)
    {
        const std::string layers = "upper" + std::to_string(++overlays_);
        TRY_VOID(sys::mkdir_at(scratch_.get(), layers));
        const auto upper = TRY(sys::make_tmpfs(step.size, kOwnerOnly, tree_flags()));
        TRY_VOID(sys::attach_tree(upper.get(), scratch_.get(), layers));
        // Both on one file system, as overlayfs wants upper and work (overlayfs.rst).
        TRY_VOID(sys::mkdir_at(upper.get(), "u", kOwnerOnly));
        TRY_VOID(sys::mkdir_at(upper.get(), "w"));
        struct stat lower{};
        if (::stat(step.source.c_str(), &lower) != 0) return fail_errno("stat", step.source);
        // The upper layer's root is the one that shows: it looks as the lower one did.
        TRY_VOID(own(upper.get(), "u", lower.st_uid, lower.st_gid));
        if (::fchmodat(upper.get(), "u", lower.st_mode & 07777, 0) != 0)
            return fail_errno("fchmodat", "overlay root");
        const std::string base = std::string(kScratch) + "/" + layers;
        const auto mount = TRY_WITH(
            sys::make_overlay({step.source}, base + "/u", base + "/w", tree_flags()),
            "overlay over " + escaped(step.source));
        if (step.target.empty()) return attach_root(mount.get());
        return attach(mount.get(), step.target, true, MachineGround::ours);
    }

    Status make_directory(const MachineStep& step)
    {
        // The lower layer may have it, with an owner of its own.
        if (beneath(step.target, O_PATH | O_DIRECTORY)) return {};
        const auto parent = TRY(make_parents(step.target));
        const std::string name = name_of(step.target);
        TRY_VOID(sys::mkdir_at(parent.get(), name, step.mode));
        TRY_VOID(own(parent.get(), name, step.uid, step.uid));
        // mkdir took the umask's bits away, and chown set-id bits.
        if (::fchmodat(parent.get(), name.c_str(), step.mode, 0) != 0)
            return fail_errno("fchmodat", step.target);
        return {};
    }

    Status make_symlink(const MachineStep& step)
    {
        const auto parent = TRY(make_parents(step.target));
        if (::symlinkat(step.source.c_str(), parent.get(), name_of(step.target).c_str()) != 0)
            return fail_errno("symlinkat", step.target);
        return {};
    }

    Status make_file(const MachineStep& step)
    {
        const auto parent = TRY(make_parents(step.target));
        const std::string name = name_of(step.target);
        // Whatever the lower layer has there (a link most of all) is replaced, not followed.
        if (::unlinkat(parent.get(), name.c_str(), 0) != 0 && errno != ENOENT)
            return fail_errno("unlinkat", step.target);
        TRY_VOID(sys::write_file_at(parent.get(), name, step.content, step.mode));
        return own(parent.get(), name, step.uid, step.uid);
    }

    Status bind(const MachineStep& step)
    {
        // Without links: a share is the host's tree, whose links lead somewhere in this one.
        const auto source = TRY_WITH(
            sys::open_at2(AT_FDCWD, step.source, O_PATH, 0, sys::kNoSymlinks),
            "share " + escaped(step.source));
        struct stat status{};
        if (::fstat(source.get(), &status) != 0) return fail_errno("fstat", step.source);
        // With everything mounted below, and all of it gets the attributes.
        const auto mount = TRY(sys::clone_tree(source.get(), "", sys::Depth::recursive));
        TRY_VOID(
            sys::set_mount_attributes(mount.get(), tree_flags(step.access), sys::Depth::recursive));
        return attach(mount.get(), step.target, S_ISDIR(status.st_mode), step.ground);
    }

    Status make_tmpfs(const MachineStep& step)
    {
        // It may be the one with the secrets; and there is nothing to swap to.
        const auto mount = TRY(sys::make_unswapped_tmpfs(step.size, step.mode, tree_flags()));
        TRY_VOID(own(mount.get(), "", step.uid, step.gid));
        // chown took set-id bits off.
        if (::fchmodat(mount.get(), ".", step.mode, 0) != 0)
            return fail_errno("fchmodat", step.target);
        TRY_VOID(
            sys::set_mount_attributes(mount.get(), tree_flags(step.access), sys::Depth::single));
        return attach(mount.get(), step.target, true, step.ground);
    }

    Status pin(const std::string& target)
    {
        TRY_VOID(make_folder(target));
        // The folder itself, not what the mount shows.
        const auto folder = TRY(beneath(target, O_PATH | O_DIRECTORY));
        // A mount over itself: a mount point cannot be renamed or removed, so the masks below stay
        // where they are.
        const auto self = TRY(sys::clone_tree(folder.get(), "", sys::Depth::recursive));
        return sys::attach_tree(self.get(), folder.get(), "");
    }

    Status mask(const MachineStep& step)
    {
        struct stat status{};
        bool folder = false;
        // A link is covered as such: its target is another path.
        if (const auto there = beneath(step.target, O_PATH | O_NOFOLLOW)) {
            if (::fstat(there->get(), &status) != 0) return fail_errno("fstat", step.target);
            folder = S_ISDIR(status.st_mode);
        }
        // Also where nothing is there: the workload must not be able to make it.
        const auto cover = TRY(make_cover(folder));
        return attach(cover.get(), step.target, folder, step.ground);
    }

    Result<sys::UniqueFd> make_cover(bool folder)
    {
        // Once: all masks are clones of two nodes.
        if (!masks_.valid()) {
            sys::MountAttributes attributes = tree_flags();
            attributes.no_exec = true;
            const auto mount = TRY(sys::make_tmpfs(kMaskSize, kOwnerOnly, attributes));
            TRY_VOID(sys::write_file_at(mount.get(), "file", "", 0444));
            TRY_VOID(sys::mkdir_at(mount.get(), "folder", 0555));
            attributes.read_only = true;
            // After both were made.
            TRY_VOID(sys::set_mount_attributes(mount.get(), attributes, sys::Depth::single));
            TRY_VOID(sys::mkdir_at(scratch_.get(), "masks"));
            TRY_VOID(sys::attach_tree(mount.get(), scratch_.get(), "masks"));
            masks_ = TRY(sys::open_at(scratch_.get(), "masks", O_PATH | O_DIRECTORY));
        }
        return sys::clone_tree(masks_.get(), folder ? "folder" : "file", sys::Depth::single);
    }

    Result<sys::UniqueFd> beneath(const std::string& path, int flags) const
    {
        // kBeneath: no link of an image and no ".." leads out of the tree.
        return sys::open_at2(root_.get(), path.empty() ? "." : path, flags, 0, sys::kBeneath);
    }

    Status make_folder(const std::string& path)
    {
        // What is there is taken as it is.
        if (path.empty() || beneath(path, O_PATH | O_DIRECTORY)) return {};
        const auto parent = TRY(make_parents(path));
        return sys::mkdir_at(parent.get(), name_of(path), kOwnerOnly);
    }

    Result<sys::UniqueFd> make_parents(const std::string& path)
    {
        TRY_VOID(make_folder(parent_of(path)));
        return beneath(parent_of(path), O_RDONLY | O_DIRECTORY);
    }

    Status make_target(const std::string& target, bool folder)
    {
        if (folder) return make_folder(target);
        const auto parent = TRY(make_parents(target));
        return sys::write_file_at(parent.get(), name_of(target), "", 0444);
    }

    Status attach(int mount, const std::string& target, bool folder, MachineGround ground)
    {
        auto place = beneath(target, O_PATH | O_NOFOLLOW);
        // Only on ground of ours may a target be made: on a writable share of the host it would be
        // a file of the host.
        if (!place && place.error().code() == Code::not_found && ground == MachineGround::ours) {
            TRY_VOID(named(make_target(target, folder), target));
            place = beneath(target, O_PATH | O_NOFOLLOW);
        }
        if (!place) return fail(std::move(place).error().with("mount target /" + escaped(target)));
        return sys::attach_tree(mount, place->get(), "");
    }

    static Status named(Status status, const std::string& target)
    {
        if (status) return status;
        return fail(std::move(status).error().with("mount target /" + escaped(target)));
    }

    sys::UniqueFd scratch_;
    sys::UniqueFd root_;
    sys::UniqueFd masks_;
    int overlays_ = 0;
    bool sealed_ = false;
};

Status mount_shares(const std::vector<wire::MachineShare>& shares)
{
    for (const wire::MachineShare& share : shares) {
        const std::string place = std::string(kShares) + "/" + share.tag;
        TRY_VOID(sys::make_dirs(place));
        const auto access = share.read_only ? MachineAccess::read_only : MachineAccess::read_write;
        const auto mount = TRY_WITH(
            sys::make_filesystem("virtiofs", {{"source", share.tag}}, tree_flags(access)),
            "share " + escaped(share.tag));
        TRY_VOID(sys::attach_tree(mount.get(), AT_FDCWD, place));
    }
    return {};
}

}  // namespace

Status enter_tree(const wire::Machine& machine)
{
    if (machine.steps.empty()) return {};
    // Modes of steps are set in so many words; this is for what lies between.
    ::umask(022);
    TreeBuilder builder;
    TRY_VOID(builder.begin());
    // Before the steps: binds are clones of them.
    TRY_VOID(mount_shares(machine.shares));
    for (const wire::MachineStep& step : machine.steps) TRY_VOID(builder.run(step));
    TRY_VOID(builder.finish(machine));
    // Clones hold what they show; nothing else is to be found by their path.
    for (const wire::MachineShare& share : machine.shares)
        TRY_VOID(sys::unmount_lazy(std::string(kShares) + "/" + share.tag));
    // Clones came with what they were cloned from.
    TRY_VOID(sys::make_all_private());
    return confine::enter_tree(builder.root());
}

}  // namespace sandbox::guest
