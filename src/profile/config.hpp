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
namespace sandbox::profile {

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
    std::uint32_t max_sandboxes = 1000;
    std::optional<Bytes> copy_limit;  // most content that one `cp` moves
    Bytes log_size{16ULL << 20};  // per stream set, before rotation drops
    std::uint32_t log_files = 4;
    std::uint32_t id_base = 0x20000000;  // first host id handed to sandboxes: 2^29
    std::uint32_t id_ranges = 4096;  // ranges of 65536
    std::map<std::string, std::string> directories;  // "state", "run", "secrets" overrides
    MicrovmSizes microvm;
    std::vector<std::string> microvm_stores;  // read-only; all sources below one are one share
    std::vector<std::string>
        microvm_shares;  // empty: any source; else each lies in one, or a store
    bool operator==(const OperatorConfig&) const = default;
};

struct ParsedConfig {
    std::optional<OperatorConfig> config;
    Locations where;
    std::vector<Diagnostic> diagnostics;
};
ParsedConfig parse_config(std::string_view toml, std::string_view file,
                          Schema schema = Schema::check);
std::string render_config(const OperatorConfig& config);  // TOML that parses back equal

}  // namespace sandbox::profile
