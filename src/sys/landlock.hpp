// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "sys/fd.hpp"

namespace sandbox::sys {

// The ABI that this kernel speaks (landlock_create_ruleset(2), VERSION); 0 where Landlock is absent
// or switched off. Which ABI came with which kernel: userspace-api/landlock.rst.
int landlock_abi() noexcept;

// Access bits: LANDLOCK_ACCESS_FS_* by number (uapi/linux/landlock.h of 6.18; the system's own
// header may be older).
namespace landlock {
inline constexpr std::uint64_t kExecute = 1U << 0;
inline constexpr std::uint64_t kWriteFile = 1U << 1;
inline constexpr std::uint64_t kReadFile = 1U << 2;
inline constexpr std::uint64_t kReadDir = 1U << 3;
inline constexpr std::uint64_t kRefer = 1U << 13;  // ABI 2
inline constexpr std::uint64_t kTruncate = 1U << 14;  // ABI 3
inline constexpr std::uint64_t kIoctlDev = 1U << 15;  // ABI 5
inline constexpr std::uint64_t kNetBind = 1U << 0;  // ABI 4, TCP
inline constexpr std::uint64_t kNetConnect = 1U << 1;
inline constexpr std::uint64_t kScopeAbstractUnix = 1U << 0;  // ABI 6
inline constexpr std::uint64_t kScopeSignal = 1U << 1;

inline constexpr std::uint64_t kReadExecute = kExecute | kReadFile | kReadDir;

std::uint64_t all_fs(int abi) noexcept;  // every access this ABI can handle
std::uint64_t all_net(int abi) noexcept;  // 0 before ABI 4
std::uint64_t all_scopes(int abi) noexcept;  // 0 before ABI 6
std::uint64_t file_only(std::uint64_t access) noexcept;  // bits that may be given for a non-folder
}  // namespace landlock

// One folder or file and all below it. Rights of several rules add up.
struct LandlockPathRule {
    std::string path;  // opened O_PATH; a missing path is an error, never skipped
    std::uint64_t access = 0;  // bits beyond the ABI are an error, except that for a non-folder
        // the folder-only bits are taken off
    bool operator==(const LandlockPathRule&) const = default;
};
struct LandlockPortRule {
    std::uint16_t port = 0;
    std::uint64_t access = 0;
    bool operator==(const LandlockPortRule&) const = default;
};
// What is handled and not given by a rule is refused. A pure value: applying it opens the paths.
struct LandlockRules {
    int abi = 0;  // planned for; 0: Landlock is not applied
    std::uint64_t handled_fs = 0;
    std::uint64_t handled_net = 0;
    std::uint64_t scopes = 0;
    std::vector<LandlockPathRule> paths;
    std::vector<LandlockPortRule> ports;
    bool operator==(const LandlockRules&) const = default;
};

// A ruleset that is not in force yet. invalid_argument and unavailable for what this kernel cannot;
// not_found for a path, which is named.
[[nodiscard]] Result<UniqueFd> make_ruleset(const LandlockRules& rules);
// Async-signal-safe variants for a forked child: build, restrict, close. Requires no_new_privs or
// CAP_SYS_ADMIN. 0 or an errno; `failed_path` (may be null) points to the path to blame.
int apply_landlock(const LandlockRules& rules, const char** failed_path) noexcept;
int restrict_self(int ruleset) noexcept;

}  // namespace sandbox::sys
