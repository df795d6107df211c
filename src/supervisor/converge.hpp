// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "supervisor/paths.hpp"
#include "supervisor/service.hpp"
#include "sys/fd.hpp"

// Keeps what profiles.d asks for running. The daemon drives it; `sandboxctl apply` of the folder is
// one pass of it.
namespace sandbox::supervisor {

// What one pass did and found; ApplyResult names each sandbox, its file and why.
using ConvergeReport = ApplyResult;

// Owns its inotify and timer descriptors and nothing else: each pass opens config, policy, facts
// and ledger anew, so that a change of any of them holds from the next pass on. Not thread-safe.
class Converger {
public:
    // Folders that do not exist yet are noticed when they appear.
    [[nodiscard]] static Result<Converger> watch(const Paths& paths);

    // One idempotent pass over the folders and the ledger: starts what should run and does not
    // (once a boot; restarting within it is the shim's), updates, replaces, removes. A file that is
    // wrong is in the report and its last good state goes on. Blocks: a replaced sandbox has its
    // stop timeout. Errors: config, policy or ledger cannot be read; nothing was touched then.
    [[nodiscard]] Result<ConvergeReport> converge();

    // Readable when on_event() has something: poll them, level-triggered.
    std::vector<int> watch_fds() const { return {inotify_.get(), quiet_.get()}; }
    // Never blocks. True: the folders changed and have been quiet since: a pass is due.
    bool on_event();

private:
    Converger(Paths paths, sys::UniqueFd inotify, sys::UniqueFd quiet);
    void renew_watches();

    Paths paths_;
    sys::UniqueFd inotify_;
    sys::UniqueFd quiet_;  // timerfd: the end of the debounce
    std::string seen_;  // what the last pass found wrong: said once, not at every pass
    std::set<std::string> failed_;  // digests of plans that could not take the place of what runs
};

}  // namespace sandbox::supervisor
