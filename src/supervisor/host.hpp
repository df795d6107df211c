// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "facts/facts.hpp"
#include "policy/policy.hpp"
#include "probe/probe.hpp"
#include "profile/config.hpp"
#include "supervisor/config_files.hpp"
#include "supervisor/paths.hpp"
#include "supervisor/service.hpp"

namespace sandbox::supervisor {

// What the resolver needs besides a profile. Past its loading nothing reads the host. A value; may
// be kept, but is of the moment it was loaded.
struct Host {
    Paths paths;
    profile::OperatorConfig config;
    probe::ProbeSettings probing;
    LoadedBundles bundles;
    policy::EffectivePolicy policy;
    facts::CapabilitySnapshot snapshot;

    std::string cgroup_parent() const;
    // The operator's folder, one file a secret: read by shims, never by a supervisor.
    std::string secret_store() const;
};

// What stands in place of the operator's numbers where an ordinary user launches: the driver that can
// (unless the config names one), the user's own ids, and a cgroup below one that is the user's
// (unless the config names one). For root nothing changes. Reads files; on cgroup v2 this process may
// step aside to a child of its cgroup, when it is alone in one of its own.
void adapt_to_user(Host& host, const LoadedConfig& loaded);

// cached: a fresh probe cache is good enough; probed renews the cache.
enum class Freshness { cached, probed };  // probed: find everything out again

// A config that is wrong is Code::invalid_argument and lists what is wrong: nothing runs under a
// guess. Blocks on the disk, and with a probe as long as its children take (they have
// deadlines).
[[nodiscard]] Result<Host> load_host(const Paths& paths, Freshness freshness);

// PROFILE of the command line: with a slash or ending in .toml a path, "-" standard input, else a
// name in profiles.d (the operator's file before the vendor's; a link to /dev/null masks it).
// not_found, invalid_argument (no regular file). At most one byte more than a profile may have is
// read.
[[nodiscard]] Result<ProfileText> read_profile(const Paths& paths, const std::string& reference);

}  // namespace sandbox::supervisor
