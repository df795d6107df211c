// SPDX-License-Identifier: Apache-2.0
#include "sys/mount.hpp"

#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

// <sys/mount.h> of glibc 2.36 clashes with <linux/mount.h>: the few old constants are spelled out.
namespace {

constexpr unsigned long kMsRec = 0x4000;        // MS_REC
constexpr unsigned long kMsPrivate = 1UL << 18; // MS_PRIVATE
constexpr int kDetach = 2;                      // MNT_DETACH
constexpr int kNoFollow = 8;                    // UMOUNT_NOFOLLOW

}  // namespace

namespace sandbox::sys {

namespace {

std::uint64_t bits(const MountAttributes& attributes)
{
    std::uint64_t set = 0;
    if (attributes.read_only) set |= MOUNT_ATTR_RDONLY;
    if (attributes.no_suid) set |= MOUNT_ATTR_NOSUID;
    if (attributes.no_dev) set |= MOUNT_ATTR_NODEV;
    if (attributes.no_exec) set |= MOUNT_ATTR_NOEXEC;
    return set;
}

unsigned recursive(Depth depth) { return depth == Depth::recursive ? AT_RECURSIVE : 0U; }

// The kernel says what it disliked through the context descriptor (fsopen: "e overlay: …").
std::string complaint(int context)
{
    char text[512];
    const ssize_t got = ::read(context, text, sizeof text);
    if (got <= 0) return {};
    return " (" + std::string(text, static_cast<std::size_t>(got)) + ")";
}

Status configure(int context, unsigned command, const char* key, const char* value)
{
    // errno first: reading the complaint changes it.
    if (::syscall(SYS_fsconfig, context, command, key, value, 0) == 0) return {};
    const int saved = errno;
    const std::string subject = (key != nullptr ? std::string(key) : std::string("create")) +
                                complaint(context);
    return fail(Error::from_errno(saved, "fsconfig", subject));
}

Status detach(const std::string& path, int flags)
{
    // UMOUNT_NOFOLLOW: whoever can write the folder above may have put a link there, umount2(2).
    if (::syscall(SYS_umount2, path.c_str(), flags | kNoFollow) != 0)
        return fail_errno("umount2", path);
    return {};
}

}  // namespace

Result<UniqueFd> clone_tree(int dir, const std::string& path, Depth depth)
{
    // NOFOLLOW: a link in last place would be cloned as what it leads to.
    const unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH |
                           AT_SYMLINK_NOFOLLOW | recursive(depth);
    const long fd = ::syscall(SYS_open_tree, dir, path.c_str(), flags);
    if (fd < 0) return fail_errno("open_tree", path);
    return UniqueFd(static_cast<int>(fd));
}

Status set_mount_attributes(int mount_fd, const MountAttributes& attributes, Depth depth)
{
    mount_attr attr{};
    // attr_clr stays empty: what a mount already forbids is never given back.
    attr.attr_set = bits(attributes);
    if (attributes.userns_fd >= 0) {
        attr.attr_set |= MOUNT_ATTR_IDMAP;
        attr.userns_fd = static_cast<std::uint64_t>(attributes.userns_fd);
    }
    const unsigned flags = AT_EMPTY_PATH | recursive(depth);
    if (::syscall(SYS_mount_setattr, mount_fd, "", flags, &attr, sizeof attr) != 0)
        return fail_errno("mount_setattr");
    return {};
}

Status attach_tree(int mount_fd, int dir, const std::string& path)
{
    // Without T_SYMLINKS a link at the target is not followed, move_mount(2).
    unsigned flags = MOVE_MOUNT_F_EMPTY_PATH;
    if (path.empty()) flags |= MOVE_MOUNT_T_EMPTY_PATH;
    if (::syscall(SYS_move_mount, mount_fd, "", dir, path.c_str(), flags) != 0)
        return fail_errno("move_mount", path);
    return {};
}

Result<UniqueFd> make_filesystem(const std::string& type, const FsOptions& options,
                                 const MountAttributes& attributes)
{
    const UniqueFd context(static_cast<int>(::syscall(SYS_fsopen, type.c_str(), FSOPEN_CLOEXEC)));
    if (!context) return fail_errno("fsopen", type);
    for (const auto& [key, value] : options) {
        if (value.empty())
            TRY_VOID(configure(context.get(), FSCONFIG_SET_FLAG, key.c_str(), nullptr));
        else
            TRY_VOID(configure(context.get(), FSCONFIG_SET_STRING, key.c_str(), value.c_str()));
    }
    TRY_VOID(configure(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr));
    UniqueFd mount(
        static_cast<int>(::syscall(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, bits(attributes))));
    if (!mount) return fail_errno("fsmount", type);
    // After fsmount: an idmap can only be set on a mount that is in no namespace yet.
    if (attributes.userns_fd >= 0) {
        MountAttributes idmap;
        idmap.userns_fd = attributes.userns_fd;
        TRY_VOID(set_mount_attributes(mount.get(), idmap, Depth::single));
    }
    return mount;
}

namespace {

FsOptions tmpfs_options(std::uint64_t size_bytes, std::uint32_t mode)
{
    char octal[16];
    std::snprintf(octal, sizeof octal, "%o", mode & 07777U);
    return {{"size", std::to_string(size_bytes)}, {"mode", octal}, {"source", "tmpfs"}};
}

}  // namespace

Result<UniqueFd> make_tmpfs(std::uint64_t size_bytes, std::uint32_t mode,
                            const MountAttributes& attributes)
{
    return make_filesystem("tmpfs", tmpfs_options(size_bytes, mode), attributes);
}

Result<UniqueFd> make_unswapped_tmpfs(std::uint64_t size_bytes, std::uint32_t mode,
                                      const MountAttributes& attributes)
{
    FsOptions options = tmpfs_options(size_bytes, mode);
    options.emplace_back("noswap", "");
    auto mount = make_filesystem("tmpfs", options, attributes);
    // EINVAL is the kernel's answer to an option it does not know.
    if (mount || mount.error().errnum() != EINVAL) return mount;
    return make_tmpfs(size_bytes, mode, attributes);
}

Result<UniqueFd> make_overlay(const std::vector<std::string>& lower, const std::string& upper,
                              const std::string& work, const MountAttributes& attributes)
{
    // ':' separates layers and ',' and '\\' are eaten by the parser: a path that holds one would
    // name other folders than the plan does.
    std::string layers;
    for (const std::string& path : lower) {
        if (path.find_first_of(":,\\") != std::string::npos)
            return fail(Code::invalid_argument,
                        "an overlay layer's path holds ':', ',' or a backslash: " + path);
        if (!layers.empty()) layers += ':';
        layers += path;
    }
    return make_filesystem(
        "overlay",
        {{"source", "overlay"}, {"lowerdir", layers}, {"upperdir", upper}, {"workdir", work}},
        attributes);
}

Status unmount(const std::string& path) { return detach(path, 0); }

Status unmount_lazy(const std::string& path) { return detach(path, kDetach); }

Status make_all_private()
{
    // Recursive and from the root: a single shared mount would send ours to the host.
    if (::syscall(SYS_mount, nullptr, "/", nullptr, kMsRec | kMsPrivate, nullptr) != 0)
        return fail_errno("mount(MS_PRIVATE)", "/");
    return {};
}

Status pivot_root_into(int new_root_dir)
{
    if (::fchdir(new_root_dir) != 0) return fail_errno("fchdir");
    // "." twice: the old root lands on top of the new one and is taken off by the detach below; no
    // put_old folder is needed (pivot_root(2), NOTES). Lazily, since we still have it open.
    if (::syscall(SYS_pivot_root, ".", ".") != 0) return fail_errno("pivot_root");
    if (::syscall(SYS_umount2, ".", kDetach) != 0) return fail_errno("umount2", "old root");
    // The working folder would otherwise still be a path into what was detached.
    if (::chdir("/") != 0) return fail_errno("chdir", "/");
    return {};
}

Status unshare_namespaces(int clone_flags)
{
    if (::unshare(clone_flags) != 0) return fail_errno("unshare");
    return {};
}

}  // namespace sandbox::sys
