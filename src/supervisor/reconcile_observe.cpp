// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include <set>

#include "supervisor/reconcile.hpp"
#include "sys/file.hpp"

namespace sandbox::supervisor {

namespace {

using ledger::EntryKind;

Life life_of(const sys::ProcessIdentity& identity, const std::string& boot_id)
{
    if (identity.boot_id != boot_id) return Life::dead;
    const auto handle = sys::Pidfd::open(identity);
    if (!handle) {
        const Code code = handle.error().code();
        // When in doubt (no descriptors left, …) it lives: nothing is taken from the living.
        // not_found: no such process; foreign: the number belongs to another one now.
        return code == Code::not_found || code == Code::foreign ? Life::dead : Life::alive;
    }
    return handle->ended().value_or(false) ? Life::dead : Life::alive;
}

// Names of our form in one folder; a missing folder has none.
Result<std::vector<std::string>> ids_in(int root, const std::string& path)
{
    const auto folder = sys::open_at(root, path, O_RDONLY | O_DIRECTORY);
    if (!folder) {
        if (folder.error().code() == Code::not_found) return std::vector<std::string>{};
        return fail(folder.error());
    }
    // Beyond any real folder; a bound on memory.
    auto names = TRY(sys::list_dir(folder->get(), 1U << 20));
    std::erase_if(names, [](const std::string& name) { return !ledger::is_sandbox_id(name); });
    return names;
}

bool owned_by_us(int root, const std::string& path)
{
    // S_ISDIR and no following: a link under one of our names is not our folder.
    struct stat info{};
    return fstatat(root, path.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           info.st_uid == geteuid() && S_ISDIR(info.st_mode);
}

bool exists(int root, const std::string& path)
{
    struct stat info{};
    return fstatat(root, path.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
}

Status examine(Orphan& orphan, const driver::ResourceContext& context)
{
    const auto name = [&](EntryKind kind) { return driver::resource_name(kind, orphan.id, ""); };
    // Their command line carries the id, so they are found even if the ledger lost them.
    for (const auto kind : {EntryKind::shim_process, EntryKind::log_worker}) {
        const auto processes = TRY(driver::find_by_argument(name(kind)));
        orphan.live_process = orphan.live_process || !processes.empty();
    }
    switch (orphan.kind) {
    case OrphanKind::run_dir:
        orphan.owned_by_us = owned_by_us(context.run_root, orphan.name);
        return {};
    case OrphanKind::state_dir:
        orphan.owned_by_us = owned_by_us(context.state_root, orphan.name);
        return {};
    case OrphanKind::cgroup: break;
    }
    const auto tree = TRY(sys::cgroup::CgroupTree::find(context.cgroups, orphan.name));
    const auto processes = TRY(tree.processes());
    orphan.populated = !processes.empty();
    orphan.owned_by_us = !tree.empty();
    // In every hierarchy: one folder that is not ours makes all of it doubtful.
    for (const auto& folder : tree.folders()) orphan.owned_by_us &= owned_by_us(AT_FDCWD, folder);
    orphan.has_our_folder = exists(context.run_root, name(EntryKind::run_dir)) ||
                            exists(context.state_root, name(EntryKind::state_dir));
    return {};
}

}  // namespace

Result<LedgerView> read_view(ledger::Ledger& ledger)
{
    LedgerView view;
    view.sandboxes = TRY(ledger.list(ledger::ListScope::all));
    view.open = TRY(ledger.open_entries());
    view.claims = TRY(ledger.claims());
    view.has_history = TRY(ledger.has_history());
    return view;
}

Result<std::vector<Orphan>> find_candidates(const driver::ResourceContext& context)
{
    // Cgroups come first: a folder of the same id is part of the proof that a cgroup is ours, and
    // it is removed after.
    std::vector<Orphan> found;
    std::set<std::string> cgroups;
    // In v1 each hierarchy has a folder of its own, and a crash may leave any of them.
    for (const auto& hierarchy : context.cgroups.hierarchies) {
        const auto names = TRY(ids_in(AT_FDCWD, hierarchy.mount + context.cgroup_parent));
        cgroups.insert(names.begin(), names.end());
    }
    for (const auto& id : cgroups) {
        const std::string name = driver::resource_name(EntryKind::cgroup_root, SandboxId(id),
                                                       context.cgroup_parent);
        found.push_back(Orphan{OrphanKind::cgroup, SandboxId(id), name});
    }
    for (const auto& id : TRY(ids_in(context.run_root, "."))) {
        found.push_back(Orphan{OrphanKind::run_dir, SandboxId(id), id});
    }
    for (const auto& id : TRY(ids_in(context.state_root, "sandboxes"))) {
        found.push_back(Orphan{OrphanKind::state_dir, SandboxId(id), "sandboxes/" + id});
    }
    return found;
}

Result<Observed> observe(const LedgerView& view, std::vector<Orphan> candidates,
                         const driver::ResourceContext& context)
{
    Observed observed;
    observed.boottime_ns = static_cast<std::uint64_t>(sys::boottime_ns());
    std::set<SandboxId> known;
    for (const auto& sandbox : view.sandboxes) {
        known.insert(sandbox.id);
        // A deleted one keeps the identity of its last shim, which is history.
        if (sandbox.shim && sandbox.state != ledger::State::deleted) {
            observed.shims[sandbox.id] = life_of(*sandbox.shim, context.boot_id);
        }
    }
    for (const auto& claim : view.claims) {
        observed.holders[claim.operation] = life_of(claim.holder, context.boot_id);
    }
    for (auto& orphan : candidates) {
        if (known.contains(orphan.id)) continue;
        TRY_VOID(examine(orphan, context));
        observed.orphans.push_back(std::move(orphan));
    }
    return observed;
}

}  // namespace sandbox::supervisor
