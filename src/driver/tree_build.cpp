// SPDX-License-Identifier: Apache-2.0
#include "driver/tree_build.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/diagnostic.hpp"
#include "sys/file.hpp"
#include "sys/mount.hpp"

namespace sandbox::driver {
namespace {

// Two nodes and nothing else, ever.
constexpr std::uint64_t kMaskSize = 4096;
constexpr std::uint32_t kOwnerOnly = 0755;

sys::MountAttributes tree_flags()
{
    sys::MountAttributes attributes;
    attributes.no_suid = true;
    attributes.no_dev = true;
    return attributes;
}

struct Split {
    std::string parent;
    std::string name;
};

Split split(const std::string& path)
{
    const auto slash = path.rfind('/');
    if (slash == std::string::npos) return {"", path};
    return {path.substr(0, slash), path.substr(slash + 1)};
}

class TreeBuilder {
public:
    TreeBuilder(PreparedSources sources, int scratch, std::string scratch_path, std::string rootfs)
        : sources_(std::move(sources)), scratch_(scratch), scratch_path_(std::move(scratch_path)),
          rootfs_(std::move(rootfs))
    {
    }

    Status run(const TreeStep& step)
    {
        return std::visit([this](const auto& one) { return apply(one); }, step);
    }

private:
    Status apply(const RootTmpfs& step)
    {
        const sys::UniqueFd mount = TRY(sys::make_tmpfs(step.size, kOwnerOnly, tree_flags()));
        TRY_VOID(own(mount.get(), step.owner, step.owner));
        TRY_VOID(sys::attach_tree(mount.get(), scratch_, rootfs_));
        foreign_ = false;
        return open_root();
    }

    Status apply(const Overlay& step)
    {
        const PreparedMount& lower = sources_.mounts.at(next_source_++);
        const std::string number = std::to_string(next_source_);
        const std::string lower_name = "lower" + number;
        const std::string upper_name = "upper" + number;
        TRY_VOID(sys::mkdir_at(scratch_, lower_name));
        TRY_VOID(sys::mkdir_at(scratch_, upper_name));
        TRY_VOID(sys::attach_tree(lower.mount.get(), scratch_, lower_name));
        const sys::UniqueFd upper = TRY(sys::make_tmpfs(step.size, kOwnerOnly, tree_flags()));
        TRY_VOID(sys::attach_tree(upper.get(), scratch_, upper_name));
        TRY_VOID(sys::mkdir_at(upper.get(), "u"));
        TRY_VOID(sys::mkdir_at(upper.get(), "w"));
        // The upper layer's root is the one that shows: it looks as the lower one did.
        const sys::UniqueFd top = TRY(sys::open_at(upper.get(), "u", O_RDONLY | O_DIRECTORY));
        TRY_VOID(own(top.get(), lower.uid, lower.gid));
        if (::fchmod(top.get(), lower.mode) != 0) return fail_errno("fchmod", "overlay root");
        const std::string base = scratch_path_ + "/";
        const sys::UniqueFd mount = TRY_WITH(
            sys::make_overlay({base + lower_name}, base + upper_name + "/u",
                              base + upper_name + "/w", tree_flags()),
            "overlay over " + escaped(step.lower.str()));
        if (!step.target.empty()) return attach(mount.get(), step.target, true, Ground::ours);
        TRY_VOID(sys::attach_tree(mount.get(), scratch_, rootfs_));
        return open_root();
    }

    Status apply(const MakeDirectory& step)
    {
        if (foreign_ && open_beneath(step.path, O_PATH | O_DIRECTORY)) return {};
        const int parent = TRY(parent_of(step.path));
        const std::string name = split(step.path).name;
        if (::mkdirat(parent, name.c_str(), step.mode) != 0) {
            const int errnum = errno;
            if (errnum == EEXIST && open_beneath(step.path, O_PATH | O_DIRECTORY)) return {};
            return fail(Error::from_errno(errnum, "mkdirat", step.path));
        }
        TRY_VOID(own_at(parent, name, step.owner));
        // The umask is 0022 here and takes nothing of 0755; a foreign parent may have passed a
        // set-group-id bit on.
        if ((foreign_ || step.mode != kOwnerOnly) &&
            ::fchmodat(parent, name.c_str(), step.mode, 0) != 0)
            return fail_errno("fchmodat", step.path);
        return {};
    }

    Status apply(const MakeSymlink& step)
    {
        const int parent = TRY(parent_of(step.path));
        if (::symlinkat(step.target.c_str(), parent, split(step.path).name.c_str()) != 0)
            return fail_errno("symlinkat", step.path);
        return {};
    }

    Status apply(const MakeFile& step)
    {
        const int parent = TRY(parent_of(step.path));
        const std::string name = split(step.path).name;
        // Whatever a foreign tree has there (a link most of all) is replaced, not followed.
        if (foreign_ && ::unlinkat(parent, name.c_str(), 0) != 0 && errno != ENOENT)
            return fail_errno("unlinkat", step.path);
        TRY_VOID(sys::write_file_at(parent, name, step.content, step.mode));
        return own_at(parent, name, step.owner);
    }

    Status apply(const BindMount& step)
    {
        const PreparedMount& source = sources_.mounts.at(next_source_++);
        return attach(source.mount.get(), step.target, source.directory, step.ground);
    }

    Status apply(const TmpfsMount& step)
    {
        sys::MountAttributes attributes = tree_flags();
        const sys::UniqueFd mount = TRY(
            step.swap == Swap::never ? sys::make_unswapped_tmpfs(step.size, step.mode, attributes)
                                     : sys::make_tmpfs(step.size, step.mode, attributes));
        TRY_VOID(own(mount.get(), step.owner_uid, step.owner_gid));
        // chown took set-id bits off, and the caller's mask may have taken others at birth.
        if (::fchmodat(mount.get(), ".", step.mode, 0) != 0)
            return fail_errno("fchmodat", step.target);
        attributes.read_only = step.access == Access::read_only;
        TRY_VOID(sys::set_mount_attributes(mount.get(), attributes, sys::Depth::single));
        return attach(mount.get(), step.target, true, step.ground);
    }

    Status apply(const MaskPath& step)
    {
        TRY_VOID(make_masks());
        for (const std::string& ancestor : step.pinned) {
            // An ancestor missing in a tree of ours is made with the mask's own parents below.
            if (step.ground == Ground::ours) TRY_VOID(make_folder(ancestor));
            const sys::UniqueFd folder = TRY_WITH(open_beneath(ancestor, O_PATH | O_DIRECTORY),
                                                  "masked path " + escaped(step.path));
            const sys::UniqueFd self = TRY(
                sys::clone_tree(folder.get(), "", sys::Depth::recursive));
            TRY_VOID(sys::attach_tree(self.get(), folder.get(), ""));
        }
        struct stat status{};
        bool folder = false;
        if (const auto there = open_beneath(step.path, O_PATH | O_NOFOLLOW)) {
            if (::fstat(there->get(), &status) != 0) return fail_errno("fstat", step.path);
            folder = S_ISDIR(status.st_mode);
        } else if (there.error().errnum() == ELOOP) {
            return fail(Code::permission_denied,
                        "masked path " + escaped(step.path) +
                            " is or passes a symbolic link; mask what it points to");
        }
        const sys::UniqueFd mask = TRY(
            sys::clone_tree(masks_.get(), folder ? "folder" : "file", sys::Depth::single));
        return attach(mask.get(), step.path, folder, step.ground);
    }

    Status apply(const SealRoot&)
    {
        sys::MountAttributes attributes = tree_flags();
        attributes.read_only = true;
        return sys::set_mount_attributes(root_.get(), attributes, sys::Depth::single);
    }

    // What every masked path shows: inodes of ours, empty, unwritable.
    Status make_masks()
    {
        if (masks_.valid()) return {};
        sys::MountAttributes attributes = tree_flags();
        attributes.no_exec = true;
        sys::UniqueFd mount = TRY(sys::make_tmpfs(kMaskSize * 4, kOwnerOnly, attributes));
        TRY_VOID(sys::write_file_at(mount.get(), "file", "", 0444));
        TRY_VOID(sys::mkdir_at(mount.get(), "folder", 0555));
        attributes.read_only = true;
        TRY_VOID(sys::set_mount_attributes(mount.get(), attributes, sys::Depth::single));
        // A clone needs a mount of this namespace.
        TRY_VOID(sys::mkdir_at(scratch_, "masks"));
        TRY_VOID(sys::attach_tree(mount.get(), scratch_, "masks"));
        masks_ = TRY(sys::open_at(scratch_, "masks", O_PATH | O_DIRECTORY));
        return {};
    }

    Result<sys::UniqueFd> open_beneath(const std::string& path, int flags) const
    {
        return sys::open_at2(root_.get(), path.empty() ? "." : path, flags, 0, sys::kBeneath);
    }

    Status open_root()
    {
        root_ = TRY(sys::open_at(scratch_, rootfs_, O_PATH | O_DIRECTORY));
        return {};
    }

    Status make_folder(const std::string& path)
    {
        if (path.empty() || open_beneath(path, O_PATH | O_DIRECTORY)) return {};
        const Split at = split(path);
        TRY_VOID(make_folder(at.parent));
        const sys::UniqueFd parent = TRY(open_beneath(at.parent, O_PATH | O_DIRECTORY));
        return sys::mkdir_at(parent.get(), at.name, kOwnerOnly);
    }

    // As make_parents, kept open while steps stay in one folder. Nodes of the tree only: a mount
    // attached later would lie above what is open here, so attach() forgets it.
    Result<int> parent_of(const std::string& path)
    {
        std::string folder = split(path).parent;
        if (!parent_.valid() || folder != parent_path_) {
            parent_ = TRY(make_parents(path));
            parent_path_ = std::move(folder);
        }
        return parent_.get();
    }

    // The parent folder of `path`, made where it is missing.
    Result<sys::UniqueFd> make_parents(const std::string& path)
    {
        const std::string parent = split(path).parent;
        TRY_VOID(make_folder(parent));
        return open_beneath(parent, O_RDONLY | O_DIRECTORY);
    }

    Status make_target(const std::string& target, bool folder)
    {
        if (folder) return make_folder(target);
        const sys::UniqueFd parent = TRY(make_parents(target));
        return sys::write_file_at(parent.get(), split(target).name, "", 0444);
    }

    Status attach(int mount, const std::string& target, bool folder, Ground ground)
    {
        parent_.reset();
        const std::string context = "mount target /" + escaped(target);
        auto place = open_beneath(target, O_PATH | O_NOFOLLOW);
        if (!place && place.error().code() == Code::not_found && ground == Ground::ours) {
            if (auto made = make_target(target, folder); !made)
                return fail(std::move(made).error().with(context));
            place = open_beneath(target, O_PATH | O_NOFOLLOW);
        }
        if (!place) {
            Error error = std::move(place).error();
            if (ground == Ground::operators && error.code() == Code::not_found)
                return fail(std::move(error).with(
                    context + " must exist in the folder that is granted there"));
            return fail(std::move(error).with(context));
        }
        if (auto attached = sys::attach_tree(mount, place->get(), ""); !attached)
            return fail(std::move(attached).error().with(context));
        return {};
    }

    static Status own(int fd, std::uint32_t uid, std::uint32_t gid)
    {
        if (::fchownat(fd, "", uid, gid, AT_EMPTY_PATH) != 0) return fail_errno("fchownat");
        return {};
    }

    // A node that was made right here, by us, in a tree that nobody else sees yet.
    static Status own_at(int parent, const std::string& name, std::uint32_t id)
    {
        if (::fchownat(parent, name.c_str(), id, id, AT_SYMLINK_NOFOLLOW) != 0)
            return fail_errno("fchownat", name);
        return {};
    }

    PreparedSources sources_;
    std::size_t next_source_ = 0;
    int scratch_;
    std::string scratch_path_;
    std::string rootfs_;
    bool foreign_ = true;  // the root shows a tree that is not of our making
    sys::UniqueFd root_;
    sys::UniqueFd parent_;
    std::string parent_path_;
    sys::UniqueFd masks_;
};

}  // namespace

Status build_tree(std::span<const TreeStep> steps, PreparedSources sources, int scratch,
                  const std::string& scratch_path, const std::string& rootfs)
{
    TreeBuilder builder(std::move(sources), scratch, scratch_path, rootfs);
    for (const TreeStep& step : steps) TRY_VOID(builder.run(step));
    // Clones keep the propagation of where they came from: cut it once more.
    return sys::make_all_private();
}

}  // namespace sandbox::driver
