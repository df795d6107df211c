// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/strong.hpp"
#include "base/units.hpp"
#include "ledger/records.hpp"
#include "sys/cgroup/cgroup.hpp"

// Every kind of ledger entry in one place: how its name is derived, whether the thing is there, and
// how it is taken away. Nothing here reads or writes the ledger itself.
namespace sandbox::driver {

enum class Presence {
    present,
    absent,
    foreign,  // something of that name is there and is not what the entry recorded: left alone
};

struct ResourceContext {
    int run_root = -1;  // folder descriptor of RUN (/run/sandbox); not owned
    int state_root = -1;  // folder descriptor of STATE (/var/lib/sandbox); not owned
    sys::cgroup::Host cgroups;
    std::string cgroup_parent;  // below the hierarchy roots: "/sandbox"
    std::string boot_id;
    Millis patience{5000};  // how long one undo waits for killed processes to be gone
};

// The names of docs/formats/ledger.md, derived from the id:
//   state_dir "sandboxes/ID", log_files "sandboxes/ID/logs" (below STATE); run_dir "ID", sockets
//   "ID/v.sock" and "ID/shim.sock" (below RUN); processes "shim:ID", "log:ID", "pid1:ID",
//   "launcher:ID". cgroup_* give "<cgroup_parent>/ID[…]"; cgroup_session appends `detail`.
//   placeholder: `detail` is the absolute host path. id_range: `detail` is "FIRST+COUNT".
// A shim or log worker carries its name as one of its arguments (/proc/PID/cmdline), so that it is
// found when its identity was never recorded.
std::string resource_name(ledger::EntryKind kind, const SandboxId& id,
                          std::string_view cgroup_parent, std::string_view detail = {});

// The cgroup that shims and log workers share, beside those of the sandboxes. Nobody's entry: the
// last shim to end removes it, or else the next reconcile.
std::string shims_cgroup(std::string_view cgroup_parent);

// Entries that rest with the sandbox until it is removed (state_dir) or pruned (log_files).
bool outlives_run(ledger::EntryKind kind) noexcept;

enum class PlaceholderType { file, folder };
// Makes the missing target of a mask: empty, mode 0, marked with the sandbox id where the file
// system keeps trusted.* attributes. already_exists: the target came to be. Returns its identity.
[[nodiscard]] Result<sys::FileIdentity> make_placeholder(const SandboxId& id,
                                                         const std::string& path,
                                                         PlaceholderType type);

// encode() of all folders of a cgroup, for Transaction::observed.
std::string encode_identity(const sys::cgroup::CgroupTree& tree);

// corrupt: the entry's name is not one that its sandbox id gives (nothing was touched).
[[nodiscard]] Result<Presence> observe(const ledger::Entry& entry, const ResourceContext& context);

// Takes it away. Idempotent: absent is success, foreign is left alone and success. Processes are
// killed by identity, cgroups after their members, folders only below our roots and never through a
// link, placeholders only while empty and the same. state_dir keeps its logs/ folder.
[[nodiscard]] Status undo(const ledger::Entry& entry, const ResourceContext& context);

struct Unwound {
    std::vector<ledger::Entry> gone;  // absence proven
    std::vector<ledger::Entry> foreign;  // something else has the name now: ours is gone
    struct Left {
        ledger::Entry entry;
        std::string why;
    };
    std::vector<Left> left;  // could not be removed or not be proven gone
};

// Ends what lives in the sandbox's cgroups, then undoes the entries from the highest seq to the
// lowest and looks again. Goes on past failures. `undone` is not recorded here: the caller does,
// for `gone` and `foreign`, in one transaction.
Unwound unwind(std::span<const ledger::Entry> entries, const ResourceContext& context);

// Processes of our own user that run sandbox-shim and carry `name` as their first argument.
[[nodiscard]] Result<std::vector<sys::ProcessIdentity>> find_by_argument(std::string_view name);

}  // namespace sandbox::driver
