// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "sys/fd.hpp"
#include "sys/procfs.hpp"

namespace sandbox::sys {

// Whether what is mounted below counts, too: AT_RECURSIVE.
enum class Depth { single, recursive };

// Attributes of a mount, MOUNT_ATTR_* of linux/mount.h under names of ours.
struct MountAttributes {
    bool read_only = false;
    bool no_suid = false;
    bool no_dev = false;
    bool no_exec = false;
    int userns_fd = -1;  // idmapped through this user namespace; only for a detached, fresh tree
};

// A detached copy of what `dir`/`path` shows (path may be empty: the descriptor itself),
// open_tree(2), Linux 5.2. It is freed when the descriptor closes unless it was attached by then.
// Needs CAP_SYS_ADMIN in the user namespace of our mount namespace, as everything here that changes
// mounts.
[[nodiscard]] Result<UniqueFd> clone_tree(int dir, const std::string& path, Depth depth);
// Only adds attributes, never takes one away. mount_setattr(2), Linux 5.12. Recursive and refused
// for one mount: none is changed.
[[nodiscard]] Status set_mount_attributes(int mount_fd, const MountAttributes& attributes,
                                          Depth depth);
// Attaches a detached tree. The target is not followed if it is a link. `mount_fd` keeps the mount
// busy (EBUSY at unmount) until it is closed.
[[nodiscard]] Status attach_tree(int mount_fd, int dir, const std::string& path);

// fsopen + fsconfig + fsmount. Options are key/value strings, flags have an empty value. Not
// attached anywhere. An error carries what the kernel said through the context.
using FsOptions = std::vector<std::pair<std::string, std::string>>;
[[nodiscard]] Result<UniqueFd> make_filesystem(const std::string& type, const FsOptions& options,
                                               const MountAttributes& attributes);
[[nodiscard]] Result<UniqueFd> make_tmpfs(std::uint64_t size_bytes, std::uint32_t mode,
                                          const MountAttributes& attributes);
// The same with "noswap"; without it on a kernel that does not know the word (before 6.4).
[[nodiscard]] Result<UniqueFd> make_unswapped_tmpfs(std::uint64_t size_bytes, std::uint32_t mode,
                                                    const MountAttributes& attributes);
// upper and work are absolute paths; lower layers topmost first.
[[nodiscard]] Result<UniqueFd> make_overlay(const std::vector<std::string>& lower,
                                            const std::string& upper, const std::string& work,
                                            const MountAttributes& attributes);

[[nodiscard]] Status unmount(const std::string& path);  // not followed if a link
[[nodiscard]] Status unmount_lazy(const std::string& path);  // MNT_DETACH
// Makes every mount of this namespace private: none of ours reaches the host. Requires: a mount
// namespace of our own; in the host's it would change the host.
[[nodiscard]] Status make_all_private();
// Requires: a mount point that is not the present root, in a mount namespace of our own.
[[nodiscard]] Status pivot_root_into(int new_root_dir);  // old root is detached afterwards
[[nodiscard]] Status unshare_namespaces(int clone_flags);

// A user namespace with exactly these maps, held by nothing but the returned descriptor.
// A child in CLONE_NEWUSER waits on a pipe, we write its maps and keep /proc/PID/ns/user, the child
// is reaped. Requires: CAP_SETUID and CAP_SETGID over the outside ids; single-threaded caller.
[[nodiscard]] Result<UniqueFd> make_user_namespace(const std::vector<IdMapping>& uid_map,
                                                   const std::vector<IdMapping>& gid_map);

}  // namespace sandbox::sys
