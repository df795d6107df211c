// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include "sys/file.hpp"
#include "sys/mount.hpp"
#include "sys/process.hpp"

namespace sandbox::sys {

namespace {

// What the child of make_user_namespace does: nothing, until the parent's end of the pipe closes,
// which also happens when the parent dies.
[[noreturn]] void hold_namespace(Pipe& pipe) noexcept
{
    pipe.write.reset();
    // Not CLOEXEC alone: nothing is executed here. The child holds copies of all the parent's
    // descriptors until it ends, which is a moment later.
    char byte = 0;
    while (::read(pipe.read.get(), &byte, 1) > 0) {}
    ::_exit(0);
}

Result<UniqueFd> fill_namespace(pid_t pid, const std::vector<IdMapping>& uid_map,
                                const std::vector<IdMapping>& gid_map)
{
    const ProcDir proc = TRY(ProcDir::open(pid));
    // gid before uid is only needed without CAP_SETGID; the order costs nothing.
    TRY_VOID(write_control_at(proc.fd(), "gid_map", format_id_map(gid_map)));
    TRY_VOID(write_control_at(proc.fd(), "uid_map", format_id_map(uid_map)));
    return proc.open_namespace("user");
}

}  // namespace

Result<UniqueFd> make_user_namespace(const std::vector<IdMapping>& uid_map,
                                     const std::vector<IdMapping>& gid_map)
{
    Pipe pipe = TRY(make_pipe());
    // Without further flags: this child shares everything else, and does nothing.
    CloneOptions options;
    options.flags = CLONE_NEWUSER;
    const CloneResult child = TRY(clone_process(options));
    if (child.pid == 0) hold_namespace(pipe);
    pipe.read.reset();
    // The child is reaped whether the maps could be written or not.
    auto made = fill_namespace(child.pid, uid_map, gid_map);
    pipe.write.reset();
    const int pidfd = child.pidfd.get();
    const Pidfd handle(TRY(duplicate(pidfd)), child.pid);
    // Never late: it ends as soon as our end of the pipe is closed.
    TRY_VOID(handle.wait_exit(Deadline::never()));
    return made;
}

}  // namespace sandbox::sys
