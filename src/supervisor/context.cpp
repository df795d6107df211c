// SPDX-License-Identifier: Apache-2.0
#include "supervisor/context.hpp"

#include "sys/file.hpp"
#include "sys/process.hpp"

namespace sandbox::supervisor {

// The cgroup layout and the boot id are read once here: a context is for one operation.
Result<OpenContext> open_context(const Paths& paths, const std::string& cgroup_parent)
{
    OpenContext open;
    // Missing folders are made: the first verb on a new host may be this one.
    TRY_VOID(sys::make_dirs(paths.run));
    TRY_VOID(sys::make_dirs(paths.state));
    open.run = TRY(sys::open_dir(paths.run));
    open.state = TRY(sys::open_dir(paths.state));
    // Numbers into `open`, which owns them.
    open.context.run_root = open.run.get();
    open.context.state_root = open.state.get();
    open.context.cgroups = TRY(sys::cgroup::detect());
    open.context.cgroup_parent = cgroup_parent;
    open.context.boot_id = TRY(sys::boot_id());
    return open;
}

// Any doubt is "no": a caller that believed in a dead shim would wait for it.
bool is_alive(const sys::ProcessIdentity& identity)
{
    const auto process = sys::Pidfd::open(identity);
    if (!process) return false;
    const auto ended = process->ended();
    return ended && !*ended;
}

}  // namespace sandbox::supervisor
