// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "driver/driver.hpp"
#include "driver/oci/compile.hpp"
#include "plan/plan.hpp"
#include "sys/fd.hpp"
#include "sys/process.hpp"

// The effects behind an OciArtifact. Single-threaded callers only: it forks. The caller must be a
// child subreaper (PR_SET_CHILD_SUBREAPER): PID 1 becomes its child when crun exits.
namespace sandbox::driver::oci {

// --- programs ---------------------------------------------------------------------------------

struct SealedPrograms {
    sys::UniqueFd runtime;  // crun, sealed memfd
    sys::UniqueFd init;     // sandbox-init, sealed memfd
};

// Copies, hashes once and seals; the digests must equal plan.artifacts "oci.runtime" and
// "sandbox-init". Reads nothing else: it may run before the ledger commit.
[[nodiscard]] Result<SealedPrograms> seal(const std::map<std::string, std::string>& artifacts,
                                          const HostPath& runtime, const HostPath& init);

// --- cgroups ----------------------------------------------------------------------------------

// Directories that `create_cgroups` makes, parents first ("/sys/fs/cgroup/pids/sandbox/ID", …):
// the caller's ledger intents.
[[nodiscard]] Result<std::vector<std::string>> list_cgroups(const plan::ExecutionPlan& plan,
                                                            const Binding& binding);

// Makes <id>, <id>/control and <id>/workload in every hierarchy of the plan, writes each setting
// and reads it back; a value that does not read back as planned is an error.
[[nodiscard]] Status create_cgroups(const plan::ExecutionPlan& plan, const Binding& binding);

// One session's leaf. `joins` goes with PASS to PID 1: v1 `tasks` opened by us, one a hierarchy,
// in the plan's controller order; v2 the leaf's directory.
struct SessionLeaf {
    std::string name;
    std::vector<sys::UniqueFd> joins;
};
[[nodiscard]] Result<SessionLeaf> create_session_leaf(const plan::ExecutionPlan& plan,
                                                      const Binding& binding,
                                                      std::string_view session);
// Kills what is left in the leaf and removes it. Idempotent.
[[nodiscard]] Status remove_session_leaf(const plan::ExecutionPlan& plan, const Binding& binding,
                                         std::string_view session);
// Kernel OOM kills counted in the workload, all sessions whose leaf still exists: ask before
// remove_session_leaf().
[[nodiscard]] Result<std::uint64_t> oom_kills(const plan::ExecutionPlan& plan,
                                              const Binding& binding);

// --- mask placeholders ------------------------------------------------------------------------

// A masked path that does not exist in an operator's tree: an empty file is put there so that
// nobody can make it, and taken away again when unchanged.
struct Placeholder {
    HostPath path;
    bool operator==(const Placeholder&) const = default;
};
// Looks only. A missing parent is an error (Code::not_found).
[[nodiscard]] Result<std::vector<Placeholder>> list_placeholders(const OciArtifact& artifact);
// O_EXCL: somebody else's file there is Code::already_exists.
[[nodiscard]] Result<sys::FileIdentity> create_placeholder(const Placeholder& placeholder);
// Removes it only while it is the same inode and still empty; gone already is success, anything
// else Code::foreign.
[[nodiscard]] Status remove_placeholder(const Placeholder& placeholder, sys::FileIdentity identity);

// --- launch -----------------------------------------------------------------------------------

struct SourceIdentity {
    HostPath wanted;
    std::string resolved;  // what the descriptor really is
    sys::FileIdentity identity;
};

struct Groups;  // groups.hpp

struct LaunchOptions {
    std::chrono::milliseconds deadline{15'000};  // until INIT_UP (design 12: boot 15 s)
    const Groups* groups = nullptr;              // of make_groups(); null: opened anew
    // Called once while the runtime is at work, which takes longer than all the rest; its failure
    // is the launch's.
    std::function<Status()> meanwhile;
};

struct Launched {
    sys::UniqueFd channel;  // SEQPACKET to PID 1; closing it ends the sandbox
    sys::Pidfd init;  // PID 1, seen from here
    int init_pid = -1;  // its pid here; valid while `init` is
    // crun: reap with wait_exit when it ends (status 0 expected), do not wait for it. Empty when it
    // has ended well already.
    sys::Pidfd runtime;
    sys::UniqueFd diagnostics;  // crun's stdout and stderr, non-blocking; drained for errors only
    std::vector<SourceIdentity> sources;
};

// Makes the tree in a mount namespace of its own, starts crun there and waits for PID 1's
// INIT_UP. Requires: create_cgroups and the placeholders done; RUN/ID exists. On failure
// everything in the sandbox's cgroups has been killed and reaped; the error carries crun's own
// words, escaped and bounded.
[[nodiscard]] Result<Launched> launch(const plan::ExecutionPlan& plan, const Binding& binding,
                                      const OciArtifact& artifact, const SealedPrograms& programs,
                                      const LaunchOptions& options = {});

// SIGKILLs everything below `cgroup` (Binding::cgroup) in every hierarchy and waits until it is
// empty. Idempotent; works after a crash with nothing but the path. The deadline is for emptiness.
[[nodiscard]] Status kill_all(std::string_view cgroup,
                              std::chrono::milliseconds deadline = std::chrono::seconds(10));

// Removes the cgroups in every hierarchy, children first. Requires: kill_all. Idempotent. A parent
// left empty ("/sandbox") is removed too.
[[nodiscard]] Status remove_cgroups(std::string_view cgroup);

}  // namespace sandbox::driver::oci
