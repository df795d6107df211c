// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profile/types.hpp"

// /etc/sandbox/config.toml: what the operator says of this host.
// Read as root, at each start of a program. Only its owner may write it; the caller checks that
// (supervisor/config_files.hpp), here are only bytes.
namespace sandbox::profile {

// A file that the host must have as it was when `config init` looked. An empty digest pins nothing.
struct ArtifactPin {
    HostPath path;
    std::string version;
    std::string sha256;  // "sha256:…"
    bool operator==(const ArtifactPin&) const = default;
};

struct OperatorConfig {
    std::vector<Driver> drivers{Driver::oci, Driver::native};  // which exist; order does not matter
    Driver default_driver = Driver::oci;  // for isolation = "sandbox"
    // "crun", "sandbox-init", "sandbox-shim", "qemu", "virtiofsd", "kernel", "initrd"
    std::map<std::string, ArtifactPin> artifacts;
    std::string accelerator = "kvm";  // "kvm" | "tcg"
    bool accept_emulated = false;  // tcg only where said
    std::optional<std::string> cgroup_parent;  // below the hierarchy root: "/sandbox"
    // Of this host, all bundles apart. A bound against a loop of starts, not a measure of the
    // machine.
    std::uint32_t max_sandboxes = 1000;
    std::optional<Bytes> copy_limit;  // most content that one `cp` moves
    Bytes log_size{16ULL << 20};  // per stream set, before rotation drops
    std::uint32_t log_files = 4;
    // Far above what distributions give to users (/etc/subuid starts at 100000, with 65536 each).
    std::uint32_t id_base = 0x20000000;  // first host id handed to sandboxes: 2^29
    // 4096 sandboxes at once with a range each; the last id is 2^29 + 2^28 - 1.
    std::uint32_t id_ranges = 4096;  // ranges of 65536
    std::map<std::string, std::string> directories;  // "state", "run", "secrets" overrides
    MicrovmSizes microvm;
    std::vector<std::string> microvm_stores;  // read-only; all sources below one are one share
    std::vector<std::string>
        microvm_shares;  // empty: any source; else each lies in one, or a store
    bool operator==(const OperatorConfig&) const = default;
};

// Either a config or diagnostics (sorted); `where` belongs to the config.
struct ParsedConfig {
    std::optional<OperatorConfig> config;
    Locations where;
    std::vector<Diagnostic> diagnostics;
};
// `file` only names the text in diagnostics. Pure.
ParsedConfig parse_config(std::string_view toml, std::string_view file,
                          Schema schema = Schema::check);
std::string render_config(const OperatorConfig& config);  // TOML that parses back equal

}  // namespace sandbox::profile
