// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"
#include "base/strong.hpp"

// Where everything lives. `root` prefixes every path, so that a test or a second installation
// shares nothing with the system's. Nothing here looks whether anything exists.
namespace sandbox::supervisor {

inline constexpr const char* kDaemonSocket = "sandboxd.sock";  // below RUN

struct Paths {
    std::string root;        // "" for the system's own
    std::string config;      // ROOT/etc/sandbox/config.toml
    std::string profiles;    // ROOT/etc/sandbox/profiles.d
    std::string vendor_profiles;  // ROOT/usr/share/sandbox/profiles.d
    std::string bundles;     // ROOT/etc/sandbox/org.d
    std::string state;       // ROOT/var/lib/sandbox
    std::string run;         // ROOT/run/sandbox
    std::string
        program_dir; // folder of the running program: sandbox-shim and sandbox-init live there

    std::string ledger() const { return state + "/ledger.db"; }
    std::string socket() const { return run + "/" + kDaemonSocket; }
    std::string audit() const { return state + "/audit.jsonl"; }
    std::string state_of(const SandboxId& id) const { return state + "/sandboxes/" + id.str(); }
    std::string logs_of(const SandboxId& id) const { return state_of(id) + "/logs"; }
    std::string run_of(const SandboxId& id) const { return run + "/" + id.str(); }
};

// Root uses /etc, /var/lib and /run; an ordinary user the XDG folders. `root` is made absolute. State
// and runtime folder are the built-in ones: for what only needs the config, profiles or bundles.
Paths find_paths(const std::string& root);

// With [directories] of the config in force, prefixed by the root as every path. A config that names
// folders and is not usable is an error that lists what is wrong: nothing is looked for, or made, in
// the wrong place.
[[nodiscard]] Result<Paths> locate(const std::string& root);

// The cgroup that holds everything launched with this root: "/sandbox", or for another root
// "/sandbox-" and 8 hex digits of its path, so that two roots never meet.
std::string default_cgroup_parent(const Paths& paths);

// The folder that a profile's file lies in; empty for a bare name.
std::string folder_of(const std::string& file);

}  // namespace sandbox::supervisor
