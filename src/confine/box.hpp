// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "confine/box_spec.hpp"
#include "sys/deadline.hpp"
#include "sys/file.hpp"
#include "sys/process.hpp"

// Native confinement of a whole sandbox: new namespaces by clone3, a fresh tree with its own /dev
// and /proc, pivot_root, complete id maps, PID 1's capabilities and outer filter, then the program.
// On a host it is the native driver; inside a guest sandbox-init makes the same box around the
// workload. Links statically; needs nothing but the kernel.
//
//   parent                                   child
//   Box::start  ── clone3 (mount pid ipc uts) ─► cgroups, cgroup namespace, build(), furnish,
//                                                pivot_root, hostname, unshare (user net)
//   Box::finish ◄── "unshared" ───────────────
//               ─── id maps, "go" ───────────► ids, keyring, capabilities, no_new_privs, filter,
//                                              descriptors, execveat
//
// The user namespace comes last on purpose: mount, pid and ipc namespaces stay owned by the
// caller's, so that not even a root that regained every capability inside could mount anything. The
// network namespace is the box's own, since CAP_NET_BIND_SERVICE may be granted.
namespace sandbox::confine {

struct BoxOrder {
    // Become 0, 1, 2, … in the program, in this order. Everything else is closed. The number of
    // the program itself is not among them unless it is listed.
    std::vector<int> descriptors;
    int program = -1;  // executed without arguments and environment
    const char* name = "sandbox-init";  // argv[0]

    // Called in the child, in its own private mount namespace, with the caller's privileges: mounts
    // the tree's root at `root`, an absolute path. Nothing it mounts is seen by anybody else.
    std::function<Status()> build;
    std::string root;

    // cgroup v1: `tasks` opened by the caller, of the box's top and of where PID 1 is to live. v2:
    // folders; the box is born in `top_dir`, where its cgroup namespace is rooted, and born again in
    // `control_dir`. Nothing given: PID 1 stays where the caller is.
    std::vector<int> top_tasks;
    std::vector<int> control_tasks;
    int top_dir = -1;
    int control_dir = -1;

    // Where a failing child says why, in words. Listed in `descriptors` as well, or not.
    int diagnostics = -1;
};

// A box between its clone and its program. Ends the child when destroyed unfinished.
class Box {
public:
    // Single-threaded callers only. Returns when the child exists where it is to live (v2: its
    // first birth is over and was reaped, so that the top cgroup is empty again).
    [[nodiscard]] static Result<Box> start(const BoxSpec& spec, const BoxOrder& order,
                                           sys::Deadline deadline);
    Box(Box&&) noexcept = default;
    Box& operator=(Box&&) = delete;
    ~Box();

    // PID 1 as the caller sees it; may be waited for at any time.
    const sys::Pidfd& process() const noexcept { return process_; }

    // Writes the id maps and lets the program begin. On failure the child is dead and reaped, and
    // its words are in `diagnostics`. Requires: called once.
    [[nodiscard]] Result<sys::Pidfd> finish(sys::Deadline deadline) &&;

private:
    Box(sys::Pidfd process, sys::UniqueFd meeting, const BoxSpec& spec)
        : process_(std::move(process)), meeting_(std::move(meeting)), uids_(spec.uids),
          gids_(spec.gids), maps_(spec.own.user)
    {
    }
    [[nodiscard]] Status write_maps() const;
    void end();

    sys::Pidfd process_;
    sys::UniqueFd meeting_;  // stream socket to the child
    std::vector<sys::IdMapping> uids_;
    std::vector<sys::IdMapping> gids_;
    bool maps_;
};

// Mounts what the kernel gives into the tree at `root` (a folder descriptor): /dev with nodes of our
// own making, /dev/pts, /dev/shm, /dev/mqueue, /proc, the masks. /dev and /proc must be there.
// Requires: the box's mount, pid and ipc namespaces; CAP_SYS_ADMIN and CAP_MKNOD over them.
[[nodiscard]] Status furnish(const BoxSpec& spec, int root);

// The tree at `root` becomes the root; what was there before is gone for good. pivot_root, or where
// the old root is the kernel's first (an initramfs) a move and chroot.
[[nodiscard]] Status enter_tree(int root);

// Loopback up in the network namespace of the caller.
[[nodiscard]] Status raise_loopback();

}  // namespace sandbox::confine
