// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/result.hpp"
#include "canon/canon.hpp"
#include "profile/types.hpp"

// Organisation bundles are meets in a lattice: adding one never permits more, order does not
// matter. Absent is not empty: a bundle silent on a key permits all of it, an empty list none.
namespace sandbox::policy {

using PermittedSet = std::optional<std::set<std::string>>;  // nothing: everything

// What a bundle caps; nothing is no cap.
struct Maxima {
    std::optional<Bytes> memory;
    std::optional<MilliCpus> cpus;
    std::optional<std::uint32_t> pids;
    std::optional<Millis> ttl;
    std::optional<std::uint32_t> sandboxes;
    bool operator==(const Maxima&) const = default;
};

// What a bundle insists on; false and nothing demand nothing. log_retention: at least that long.
struct Demands {
    bool read_only_rootfs = false;
    std::optional<Millis> log_retention;
    bool cgroup_v2 = false;
    bool pinned_digests = false;
    bool operator==(const Demands&) const = default;
};

struct Bundle {
    std::string name;
    std::string valid_until;  // RFC 3339 date or date-time as written; empty: no end
    PermittedSet drivers, isolation, isolation_classes, network_modes, egress_hosts, mount_sources,
        capabilities, seccomp, users;
    Maxima max;
    Demands require;
    bool operator==(const Bundle&) const = default;
};

struct LocatedBundle {
    Bundle bundle;
    profile::Locations where;  // "drivers", "max.memory", …
};

// One bundle file. `file` only names it in diagnostics. Pure and without an Error: all that is
// wrong is told at once, with its line. Hostile input is refused, not survived.
struct ParsedBundle {
    std::optional<LocatedBundle> bundle;  // nothing when there are errors
    std::vector<Diagnostic> diagnostics;
};
ParsedBundle parse_bundle(std::string_view toml, std::string_view file);

// A bundle file that could not be used: it denies every launch.
struct BrokenBundle {
    std::string file;
    std::string why;
    bool operator==(const BrokenBundle&) const = default;
};

// Which bundle decided a key, for denials and `policy explain`.
struct Decision {
    std::string key;    // "drivers", "max.memory"
    std::string value;  // the effective value, as text
    std::vector<SourceLocation> by;  // every bundle that constrains the key; sorted
    bool operator==(const Decision&) const = default;
};

// Immutable after meet(). A value: it owns all, and any thread may read a copy.
class EffectivePolicy {
public:
    // The meet of all bundles; the result does not depend on their order or repetition.
    static EffectivePolicy meet(std::vector<LocatedBundle> bundles,
                                std::vector<BrokenBundle> broken = {});

    const Bundle& limits() const noexcept { return meet_; }  // name is empty
    const std::vector<LocatedBundle>& bundles() const noexcept { return bundles_; }  // sorted
    // Each denies everything while it is there.
    const std::vector<BrokenBundle>& broken() const noexcept { return broken_; }
    const std::vector<Decision>& decisions() const noexcept { return decisions_; }  // sorted by key

    // "drivers" permits "oci"? Mount sources are matched as whole path prefixes, egress hosts as
    // names or "*.suffix"; users as "uid:gid", "uid:*" or "*". Fails closed: false for a key there
    // is not, for a path that is not in normal form, and for everything while a bundle is broken.
    bool permits(std::string_view key, std::string_view value) const;

    // The first place that refuses `value` for `key`; an empty file when permitted.
    SourceLocation refuser(std::string_view key, std::string_view value) const;
    // Who set the effective value of a maximum ("max.memory") or a demand ("require.cgroup_v2").
    SourceLocation source_of(std::string_view key) const;

    // "sha256:…" of the meaning, not of file names or order: a plan records it, and two hosts with
    // the same rules have the same.
    const std::string& digest() const noexcept { return digest_; }

private:
    Bundle meet_;
    std::vector<LocatedBundle> bundles_;
    std::vector<BrokenBundle> broken_;
    std::vector<Decision> decisions_;
    std::string digest_;
};

// Stable, for programs; the text is for people and escaped for a terminal.2091 Past it the bundle
// keeps binding; `doctor` says so.
canon::Json to_json(const EffectivePolicy& policy);
std::string render_explain(const EffectivePolicy& policy);

}  // namespace sandbox::policy
