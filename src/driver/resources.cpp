// SPDX-License-Identifier: Apache-2.0
#include "driver/resources.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "base/failpoint.hpp"
#include "driver/resources_paths.hpp"
#include "sys/file.hpp"

namespace sandbox::driver {

namespace {

using ledger::Entry;
using ledger::EntryKind;

bool is_cgroup(EntryKind kind)
{
    return kind == EntryKind::cgroup_root || kind == EntryKind::cgroup_control ||
           kind == EntryKind::cgroup_workload || kind == EntryKind::cgroup_session;
}

// The name must be one that this id gives, whatever the ledger says: what is removed below follows
// from the name. The cgroup's parent may have been configured otherwise when the entry was made.
Status check_name(const Entry& entry)
{
    const std::string& id = entry.sandbox.str();
    const std::string tail = resource_name(entry.kind, entry.sandbox, "", "");
    bool good = ledger::is_sandbox_id(id);
    if (entry.kind == EntryKind::cgroup_session) {
        const auto at = entry.name.rfind('/');
        good = good && at != std::string::npos && at + 1 < entry.name.size() &&
               entry.name.substr(0, at + 1).ends_with(tail);
    } else if (is_cgroup(entry.kind)) {
        good = good && entry.name.ends_with(tail);
    } else if (entry.kind == EntryKind::placeholder) {
        good = good && entry.name.size() > 1;
    } else if (entry.kind != EntryKind::id_range) {
        good = good && entry.name == tail;
    }
    if (is_cgroup(entry.kind) || entry.kind == EntryKind::placeholder) {
        good = good && is_plain_absolute(entry.name);
    }
    if (good) return {};
    return fail(Code::corrupt, "ledger: entry " + std::to_string(entry.seq) + " (" +
                                   std::string(to_string(entry.kind)) + ") has the name \"" +
                                   entry.name + "\", which sandbox " + id +
                                   " does not give: nothing was touched");
}

Result<Presence> observe_process(const Entry& entry, const ResourceContext& context)
{
    if (entry.identity.empty()) {
        const auto found = TRY(find_by_argument(entry.name));
        return found.empty() ? Presence::absent : Presence::present;
    }
    const auto identity = TRY(ledger::decode_process(entry.identity));
    if (identity.boot_id != context.boot_id) return Presence::absent;
    const auto handle = sys::Pidfd::open(identity);
    if (!handle) {
        // A reused number is somebody else: ours is gone, and that is all that was asked.
        const Code code = handle.error().code();
        if (code == Code::not_found || code == Code::foreign) return Presence::absent;
        return fail(handle.error());
    }
    return TRY(handle->ended()) ? Presence::absent : Presence::present;
}

Status kill_process(const sys::ProcessIdentity& identity, sys::Deadline deadline)
{
    const auto handle = sys::Pidfd::open(identity);
    if (!handle) {
        const Code code = handle.error().code();
        if (code == Code::not_found || code == Code::foreign) return {};
        return fail(handle.error());
    }
    // PRIVILEGED: the pidfd was proven to be the recorded process, so no reused number is hit.
    const Status sent = handle->send_signal(SIGKILL);
    if (!sent && sent.error().code() != Code::not_found) return sent;
    if (TRY(handle->wait_ended(deadline))) return {};
    return fail(Code::deadline_exceeded,
                "process " + std::to_string(identity.pid) +
                    " was killed and has not ended: it may hang in the kernel");
}

// A log worker whose writers are dead reads to the end by itself: it gets a moment to do so, since
// what it has not written yet would be lost.
constexpr Millis kDrainTime{500};

Status undo_process(const Entry& entry, const ResourceContext& context)
{
    const auto deadline = sys::Deadline::after(context.patience);
    if (entry.identity.empty()) {
        for (const auto& identity : TRY(find_by_argument(entry.name))) {
            TRY_VOID(kill_process(identity, deadline));
        }
        return {};
    }
    const auto identity = TRY(ledger::decode_process(entry.identity));
    if (identity.boot_id != context.boot_id) return {};
    if (entry.kind == EntryKind::log_worker) {
        if (const auto handle = sys::Pidfd::open(identity)) {
            (void)handle->wait_ended(sys::Deadline::after(kDrainTime));
        }
    }
    return kill_process(identity, deadline);
}

// Another cgroup may have come to the name after ours went (a new start after a reboot): ours is
// one whose folder was recorded, or whose making was never recorded.
Presence presence_of(const sys::cgroup::CgroupTree& tree, const Entry& entry)
{
    if (tree.empty()) return Presence::absent;
    const auto folders = tree.identities();
    const bool recorded = std::any_of(folders.begin(), folders.end(), [&](const auto& folder) {
        return entry.identity.find(ledger::encode(folder.identity)) != std::string::npos;
    });
    return entry.identity.empty() || recorded ? Presence::present : Presence::foreign;
}

Result<Presence> observe_cgroup(const Entry& entry, const ResourceContext& context)
{
    const auto tree = TRY(sys::cgroup::CgroupTree::find(context.cgroups, entry.name));
    return presence_of(tree, entry);
}

Status undo_cgroup(const Entry& entry, const ResourceContext& context)
{
    const auto deadline = sys::Deadline::after(context.patience);
    const auto tree = TRY(sys::cgroup::CgroupTree::find(context.cgroups, entry.name));
    if (presence_of(tree, entry) != Presence::present) return {};
    // Most often its members are dead and its children gone: one call a hierarchy then.
    if (!tree.remove_vacant()) {
        TRY_VOID(tree.kill_all(deadline));
        TRY_VOID(tree.remove(deadline));
    }
    if (entry.kind != EntryKind::cgroup_root) return {};
    const std::string parent = entry.name.substr(0, entry.name.rfind('/'));
    if (parent.empty()) return {};
    TRY_VOID(sys::cgroup::remove_if_empty(context.cgroups, shims_cgroup(parent)));
    return sys::cgroup::remove_if_empty(context.cgroups, parent);
}

}  // namespace

std::string shims_cgroup(std::string_view cgroup_parent)
{
    return std::string(cgroup_parent) + "/shims";
}

std::string resource_name(EntryKind kind, const SandboxId& id, std::string_view cgroup_parent,
                          std::string_view detail)
{
    const std::string cgroup = std::string(cgroup_parent) + "/" + id.str();
    switch (kind) {
    case EntryKind::id_range:
    case EntryKind::placeholder: return std::string(detail);
    case EntryKind::state_dir: return "sandboxes/" + id.str();
    case EntryKind::log_files: return "sandboxes/" + id.str() + "/logs";
    case EntryKind::run_dir: return id.str();
    case EntryKind::door_socket: return id.str() + "/v.sock";
    case EntryKind::shim_socket: return id.str() + "/shim.sock";
    case EntryKind::cgroup_root: return cgroup;
    case EntryKind::cgroup_control: return cgroup + "/control";
    case EntryKind::cgroup_workload: return cgroup + "/workload";
    case EntryKind::cgroup_session: return cgroup + "/workload/" + std::string(detail);
    case EntryKind::shim_process: return "shim:" + id.str();
    case EntryKind::log_worker: return "log:" + id.str();
    case EntryKind::pid1_process: return "pid1:" + id.str();
    case EntryKind::launcher_process: return "launcher:" + id.str();
    }
    return {};
}

bool outlives_run(EntryKind kind) noexcept
{
    return kind == EntryKind::state_dir || kind == EntryKind::log_files;
}

Result<Presence> observe(const Entry& entry, const ResourceContext& context)
{
    TRY_VOID(check_name(entry));
    switch (entry.kind) {
    // Numbers only: whoever used them is in the cgroups, which are undone first.
    case EntryKind::id_range: return Presence::absent;
    case EntryKind::state_dir: return observe_state_dir(context.state_root, entry);
    case EntryKind::log_files: return observe_path(context.state_root, entry.name);
    case EntryKind::run_dir:
    case EntryKind::door_socket:
    case EntryKind::shim_socket: return observe_path(context.run_root, entry.name);
    case EntryKind::cgroup_root:
    case EntryKind::cgroup_control:
    case EntryKind::cgroup_workload:
    case EntryKind::cgroup_session: return observe_cgroup(entry, context);
    case EntryKind::placeholder: return observe_placeholder(entry);
    case EntryKind::shim_process:
    case EntryKind::log_worker:
    case EntryKind::pid1_process:
    case EntryKind::launcher_process: return observe_process(entry, context);
    }
    return fail(Code::internal, "an entry of no kind");
}

Status undo(const Entry& entry, const ResourceContext& context)
{
    TRY_VOID(check_name(entry));
    switch (entry.kind) {
    case EntryKind::id_range: return {};
    case EntryKind::state_dir: return undo_state_dir(context.state_root, entry);
    case EntryKind::log_files: return undo_logs(context.state_root, entry);
    case EntryKind::run_dir: return remove_beneath(context.run_root, entry.name);
    case EntryKind::door_socket:
    case EntryKind::shim_socket: return remove_socket(context.run_root, entry.name);
    case EntryKind::cgroup_root:
    case EntryKind::cgroup_control:
    case EntryKind::cgroup_workload:
    case EntryKind::cgroup_session: return undo_cgroup(entry, context);
    case EntryKind::placeholder: return undo_placeholder(entry);
    case EntryKind::shim_process:
    case EntryKind::log_worker:
    case EntryKind::pid1_process:
    case EntryKind::launcher_process: return undo_process(entry, context);
    }
    return fail(Code::internal, "an entry of no kind");
}

namespace {

// Whether another cgroup has come to the name that ours had: what lies below it is another's too,
// whatever name it has. An entry of a session has no identity of its own.
bool is_below_a_foreign_root(const Entry& entry, std::span<const Entry> entries,
                             const ResourceContext& context)
{
    if (!is_cgroup(entry.kind) || entry.kind == EntryKind::cgroup_root || !entry.identity.empty())
        return false;
    const auto root = std::find_if(entries.begin(), entries.end(), [&](const Entry& other) {
        return other.kind == EntryKind::cgroup_root && other.sandbox == entry.sandbox &&
               !other.identity.empty() && entry.name.starts_with(other.name + "/");
    });
    if (root == entries.end()) return false;
    const auto tree = sys::cgroup::CgroupTree::find(context.cgroups, root->name);
    return tree && presence_of(*tree, *root) == Presence::foreign;
}

}  // namespace

Unwound unwind(std::span<const Entry> entries, const ResourceContext& context)
{
    std::vector<Entry> order(entries.begin(), entries.end());
    std::sort(order.begin(), order.end(),
              [](const Entry& a, const Entry& b) { return a.seq > b.seq; });
    // Members first: helpers outside the cgroup (the log worker) then see the end of their input.
    for (const Entry& entry : order) {
        if (entry.kind != EntryKind::cgroup_root || !check_name(entry)) continue;
        const auto tree = sys::cgroup::CgroupTree::find(context.cgroups, entry.name);
        // A failure shows again, with its entry, when the cgroup is removed below.
        if (tree && presence_of(*tree, entry) == Presence::present)
            (void)tree->kill_all(sys::Deadline::after(context.patience));
    }
    failpoint("undo.members");
    Unwound result;
    for (const Entry& entry : order) {
        if (is_below_a_foreign_root(entry, order, context)) {
            result.foreign.push_back(entry);
            continue;
        }
        const Status done = undo(entry, context);
        failpoint("undo", to_string(entry.kind));
        if (!done) {
            result.left.push_back({entry, done.error().message()});
            continue;
        }
        // What undo says is not proof: look.
        const auto seen = observe(entry, context);
        if (!seen)
            result.left.push_back({entry, seen.error().message()});
        else if (*seen == Presence::absent)
            result.gone.push_back(entry);
        else if (*seen == Presence::foreign)
            result.foreign.push_back(entry);
        else
            result.left.push_back({entry, "it is still there after its removal"});
    }
    return result;
}

std::string encode_identity(const sys::cgroup::CgroupTree& tree)
{
    std::string text = "[";
    for (const auto& folder : tree.identities()) {
        if (text.size() > 1) text += ',';
        text += ledger::encode(folder.identity);
    }
    return text + "]";
}

}  // namespace sandbox::driver
