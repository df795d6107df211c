// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/result.hpp"
#include "canon/canon.hpp"
#include "policy/policy.hpp"
#include "probe/probe.hpp"
#include "profile/config.hpp"

// The operator's files: config.toml and org.d. Each is opened once, judged by its descriptor
// (owner, mode, kind) and read from it, so what was judged is what is read.
namespace sandbox::supervisor {

struct LoadedConfig {
    std::optional<profile::OperatorConfig> config;  // nothing when there are diagnostics
    bool present = false;                           // false: built-in defaults
    std::vector<Diagnostic> diagnostics;
    bool names_driver = false;  // default_driver was written, not left to us
};

// A missing file is the built-in defaults; one that is unreadable, invalid, not a regular file,
// above 1 MiB, or writable by others than its owner (root, or the caller when not root) is refused.
// `cache_dir` is where Validated remembers (supervisor/validated.hpp); empty: nowhere. Blocks only
// on the disk.
LoadedConfig load_config(const std::string& path, const std::string& cache_dir = {});

// The only one that an ordinary user can launch with: the default where nobody says otherwise.
inline constexpr profile::Driver kUsersDriver = profile::Driver::native;

struct LoadedBundles {
    std::vector<policy::LocatedBundle> bundles;  // in order of file name
    std::vector<policy::BrokenBundle> broken;  // each denies every launch
};

// Every `*.toml` of the folder. A missing folder is no bundles; anything doubtful (a link, a
// folder or file that others may write, bad TOML, an unreadable file) is broken, never skipped.
LoadedBundles load_bundles(const std::string& dir);

// What the prober needs to know of the config. `program_dir` is where our own programs are looked
// for when the config pins none.
probe::ProbeSettings probe_settings(const profile::OperatorConfig& config,
                                    const std::string& program_dir);

// unpinned: the config names no digest, so there is nothing to compare with.
enum class PinState { match, mismatch, missing, unpinned };
std::string_view to_string(PinState state) noexcept;

// One artifact as found on the disk, against its pin.
struct ArtifactCheck {
    std::string name;  // key of [artifacts]: "crun", "sandbox-init", "qemu", …
    std::string path;
    std::string version;  // found on disk
    std::string sha256;  // found on disk
    PinState state = PinState::unpinned;
    std::optional<bool> certified;  // crun only
    std::vector<std::string> advisories;  // "CVE-… (fixed in 1.28): summary; exposure"
    std::string problem;  // empty when fine: what was wanted and found
};

struct ConfigReport {
    std::string path;
    bool present = false;
    std::vector<ArtifactCheck> artifacts;
    std::vector<std::string> problems;  // of the file itself: owner, mode, diagnostics
    bool written = false;  // by config_init
};

enum class Overwrite { no, yes };

// `guest_dir` may hold a guest image (sandbox-mkguest): its kernel and initrd are pinned too, and
// with QEMU and virtiofsd beside them the driver microvm is listed. Finds the artifacts, pins path,
// version and digest, and writes the file (0644, by rename, its folder made 0755 when missing).
// Code::already_exists when the file is there and not to be overwritten.
[[nodiscard]] Result<ConfigReport> config_init(const std::string& path,
                                               const std::string& program_dir, Overwrite overwrite,
                                               const std::string& guest_dir);

// Compares pins with the disk; changes nothing. Runs each program once with `--version`, for at
// most 5 s.
ConfigReport config_check(const std::string& path, const std::string& program_dir);

// 0 when nothing is wrong: advisories inform and do not fail.
int exit_status(const ConfigReport& report);
std::string render(const ConfigReport& report);
canon::Json to_json(const ConfigReport& report);

}  // namespace sandbox::supervisor
