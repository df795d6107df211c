// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "facts/facts.hpp"

// The prober: finds out what this host really can do, by doing it. Every active check runs in a
// disposable child with a deadline on boot time; nothing it makes (processes, mounts, cgroups,
// files) is left behind. Not for several threads at once: it forks. Blocks for some ten
// milliseconds, at most for the children's deadline.
namespace sandbox::probe {

// What the operator's config says of an artifact. Empty text: not pinned.
struct Pin {
    std::string version;
    std::string sha256;  // "sha256:…"
    bool operator==(const Pin&) const = default;
};

struct ArtifactSetting {
    std::string path;        // absolute; empty: look at the standard places
    std::optional<Pin> pin;  // nothing: built-in defaults hold, certified versions only
    bool operator==(const ArtifactSetting&) const = default;
};

// What to look at. A value: the same settings give the same cache key.
struct ProbeSettings {
    ArtifactSetting runtime;       // crun
    ArtifactSetting init;          // sandbox-init
    ArtifactSetting shim;          // sandbox-shim
    ArtifactSetting vmm;           // qemu-system-x86_64
    ArtifactSetting virtiofsd;
    ArtifactSetting guest_kernel;
    ArtifactSetting guest_initrd;
    std::optional<std::string> cgroup_parent;   // below the hierarchy root: "/sandbox"
    std::string cgroup_reason;  // why that one, for evidence; empty: the operator's
    std::vector<std::string> drivers{"native", "oci"};  // configured ones
    std::string default_driver = "oci";
    std::uint32_t id_base = 0x20000000;  // profile::OperatorConfig says why
    std::uint32_t id_ranges = 4096;  // ranges of 65536 ids
    std::string accelerator = "kvm";  // "kvm" | "tcg"
    bool accept_emulated = false;
    // What the operator says of guests; passed on as facts.
    std::optional<std::uint32_t> guest_cpus;
    std::optional<std::uint64_t> guest_memory;  // bytes
    std::vector<std::string> guest_stores;  // [microvm] stores and shares of config.toml
    std::vector<std::string> guest_shares;
    // For each disposable child. A container start takes 30 ms here and about 1 s under emulation;
    // only a check that hangs ever takes this long.
    std::chrono::milliseconds child_deadline{5000};
    std::string kvm_device = "/dev/kvm";  // tests name another
    bool operator==(const ProbeSettings&) const = default;
};

// Standard places, in the order they are tried; `program_dir` is the folder of the running
// program (sandbox-init and sandbox-shim live there or in ../libexec/sandbox). An artifact that is
// not found keeps its first candidate as path, so that the gap can name it.
void fill_standard_paths(ProbeSettings& settings, std::string_view program_dir);

// Every fact of facts::name. Never fails as a whole: what could not be found out is a gap whose
// evidence says why.
facts::CapabilitySnapshot probe(const ProbeSettings& settings);

// Takes away what killed probers of this pid namespace left: cgroups and frozen members, where all of
// it provably is theirs. Every probe does so too.
void sweep_leftovers(const ProbeSettings& settings);

// For a launch that uses a cached snapshot: is what it stands on still there (cgroup layout, each
// controller where it was, its parent still writable, the runtime still executable)? Costs a parse
// of mountinfo and a few access calls, 0.1 ms. Ok, or the first thing that changed. What is not
// looked at here is proven by the launch's own evidence.
[[nodiscard]] Status recheck_critical(const facts::CapabilitySnapshot& snapshot);

}  // namespace sandbox::probe
