// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "driver/driver.hpp"
#include "driver/groups.hpp"
#include "driver/sources.hpp"
#include "driver/tree.hpp"
#include "ledger/records.hpp"
#include "plan/plan.hpp"
#include "sys/fd.hpp"
#include "sys/process.hpp"
#include "wire/messages.hpp"

// The seam between those who run sandboxes (shim, supervisor) and the drivers. What all drivers
// share is beside this file: cgroups and session leaves (groups.hpp), the file tree (tree.hpp,
// sources.hpp, tree_build.hpp, placeholder.hpp), PID 1's record and OPENs (bootstrap.hpp), ledger
// entries (resources.hpp), evidence of what runs on this host (evidence.hpp).
//
// How the door's CONNECT 5001 is answered:
//   host processes (oci, native)  the door's connected socket goes to sandbox-init as a descriptor,
//                                 in a PASS packet on the SEQPACKET `Launched::channel`, with the
//                                 session's leaf; no relay afterwards.
//   guest (microvm)               no descriptor crosses into a guest. `Launched::channel` leads to
//                                 the driver's mux (a helper, or an end the shim's loop turns),
//                                 which takes the same packets and keeps the connected socket,
//                                 carrying it as one numbered stream with credit; leaves are
//                                 guest-made, so the packet has none. Whatever the driver, the
//                                 shim's side stays: one PASS a stream, and what sandbox-init says
//                                 of it (OPENED, ENDED, REFUSED) comes back on the channel.
namespace sandbox::driver {

// What compile() gave: the exact thing a launch will hand over. Each driver derives its own.
struct Artifact {
    std::string digest;  // "sha256:…" of the document handed over (config.json, launch spec)
    std::vector<TreeStep> steps;  // the file tree, in order; masks name their placeholders
    std::string bootstrap;  // wire bootstrap record for PID 1
    // Digests of the BPF that is loaded: "outer" around PID 1, "inner" around each session.
    std::map<std::string, std::string> filters;
    Artifact() = default;
    Artifact(const Artifact&) = default;
    Artifact(Artifact&&) = default;
    Artifact& operator=(const Artifact&) = default;
    Artifact& operator=(Artifact&&) = default;
    virtual ~Artifact() = default;
    bool operator==(const Artifact&) const = default;
};
using ArtifactPtr = std::shared_ptr<const Artifact>;

// The bytes that will run or be mapped, each copied once, hashed and sealed; by the name that
// plan.artifacts gives them ("sandbox-init", "oci.runtime", …).
using SealedPrograms = std::map<std::string, sys::UniqueFd, std::less<>>;

struct ProgramSource {
    HostPath path;
    std::string digest;  // what the bytes must hash to
};
// Reads nothing else: it may run before the ledger commit.
[[nodiscard]] Result<SealedPrograms> seal(const std::map<std::string, ProgramSource>& sources);
// Code::invalid_argument when it was not sealed.
[[nodiscard]] Result<int> program_of(const SealedPrograms& programs, std::string_view name);

struct LaunchOptions {
    std::chrono::milliseconds deadline{15'000};  // until INIT_UP (design 12: boot 15 s)
    const Groups* groups = nullptr;  // of make_groups(); null: opened anew
    // Called once while PID 1 comes up, which takes longer than all the rest; its failure is the
    // launch's.
    std::function<Status()> meanwhile;
    // Told once of the child that launches (crun; PID 1 itself where there is no other), while it
    // cannot have been reaped: its identity is for the ledger.
    std::function<void(pid_t)> launcher_started;
};

enum class Vital { no, yes };

// A sandbox whose PID 1 has spoken.
struct Launched {
    sys::UniqueFd channel;  // SEQPACKET, see above; closing it ends the sandbox
    sys::Pidfd init{sys::UniqueFd(), 0};  // PID 1; of a guest: the process that is the guest (VMM)
    int init_pid = -1;  // its pid here; valid while `init` is
    // Children that the driver needed (crun) or needs (VMM helpers): reap each with wait_exit when
    // it ends, do not wait for it. The end of a vital one is the end of the sandbox.
    struct Helper {
        std::string name;
        sys::Pidfd process;
        Vital vital = Vital::no;
    };
    std::vector<Helper> helpers;
    sys::UniqueFd diagnostics;  // helpers' stdout and stderr, non-blocking; drained for errors only
    std::vector<SourceIdentity> sources;
    // Of a guest only: its VMM and its virtiofsd processes (not ours to reap: `init` and `helpers`
    // are the first processes of their pid namespaces), the VMM's QMP socket after its handshake,
    // the console's read end (non-blocking), what the guest said of itself, and what must stay open
    // for as long as it is to live.
    sys::Pidfd machine{sys::UniqueFd(), 0};
    std::vector<sys::Pidfd> machine_helpers;
    sys::UniqueFd monitor;
    sys::UniqueFd console;
    std::vector<std::pair<std::string, std::string>> guest_report;
    std::vector<sys::UniqueFd> held;
};

// Where the sandbox's processes are: what can be read of them, and what may be passed to them.
enum class Whereabouts {
    host,  // processes of this kernel: /proc shows them, descriptors reach them
    guest,  // behind a mux: streams only; what is inside is reported, not seen
};

// One driver. Stateless: the same value serves every sandbox, from any thread.
class Backend {
public:
    virtual ~Backend() = default;

    virtual profile::Driver driver() const noexcept = 0;
    virtual Whereabouts whereabouts() const noexcept = 0;
    // What launch() is called in timings, in the audit and by failpoints.
    virtual const char* step() const noexcept { return "launch"; }
    // Names of plan.artifacts that seal() must have given for launch().
    virtual std::span<const std::string_view> programs() const noexcept = 0;
    // Kinds of process entries that launch() makes, in order: ledger intents beside those of every
    // sandbox (folders, cgroups, sockets, shim, log worker).
    virtual std::span<const ledger::EntryKind> processes() const noexcept = 0;

    // Pure: (plan, binding) -> everything launch() will do. Fails when the plan is for another
    // driver or holds what this one does not express (a bug of the resolver: law 1).
    [[nodiscard]] virtual Result<ArtifactPtr> compile(const plan::ExecutionPlan& plan,
                                                      const Binding& binding) const = 0;
    // Pure. `plan --artifact`: one JSON object. Requires: an artifact of this driver's.
    [[nodiscard]] virtual Result<std::string> render(const Artifact& artifact) const = 0;

    // Starts PID 1 and waits for its INIT_UP. Single-threaded callers that are child subreapers: it
    // forks. Requires: make_groups() and the placeholders done; RUN/ID exists or not. On failure
    // everything in the sandbox's cgroups has been killed and reaped.
    [[nodiscard]] virtual Result<Launched> launch(const plan::ExecutionPlan& plan,
                                                  const Binding& binding, const Artifact& artifact,
                                                  const SealedPrograms& programs,
                                                  const LaunchOptions& options) const = 0;

    // What the kernel says is in force around PID 1, before any OPEN. Whereabouts::host: see
    // evidence.hpp. A guest's driver reads its VMM's jail here and marks what the guest reported.
    [[nodiscard]] virtual Result<std::vector<Evidence>> observe_sandbox(
        const plan::ExecutionPlan& plan, const Binding& binding, const Launched& launched,
        const Groups* groups) const = 0;
};

// Never null for a driver that this build has.
const Backend* find_backend(profile::Driver driver) noexcept;
// Code::unavailable for a driver that this build does not have.
[[nodiscard]] Result<const Backend*> backend_of(const plan::ExecutionPlan& plan);

// Shorthand for backend_of(plan)->compile().
[[nodiscard]] Result<ArtifactPtr> compile(const plan::ExecutionPlan& plan, const Binding& binding);

}  // namespace sandbox::driver
