// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "driver/tree.hpp"
#include "sys/fd.hpp"

namespace sandbox::driver {

struct SourceIdentity {
    HostPath wanted;
    std::string resolved;  // what the descriptor really is
    sys::FileIdentity identity;
};

// A detached mount, ready to be attached: cloned where the host's mounts are seen, idmapped and
// with its flags, before the launcher leaves for its own namespace.
struct PreparedMount {
    sys::UniqueFd mount;
    bool directory = true;
    std::uint32_t mode = 0;  // of its root, and owner as the mount shows it: an overlay's upper
    std::uint32_t uid = 0;   // root takes them over
    std::uint32_t gid = 0;
};

struct PreparedSources {
    std::vector<PreparedMount> mounts;     // one a BindMount or Overlay step, in step order
    std::vector<SourceIdentity> identities;
};

// Opens each source once by descriptor, refuses what must never be granted, clones. Nothing is
// attached anywhere.
[[nodiscard]] Result<PreparedSources> prepare_sources(std::span<const TreeStep> steps,
                                                      const Binding& binding);

// Pure. Why `path` (absolute, without links) may not be a source; empty when it may.
std::string protected_reason(std::string_view path, const Binding& binding);

}  // namespace sandbox::driver
