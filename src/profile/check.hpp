// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profile/types.hpp"

// What a profile must satisfy beyond its types. Works on the typed value, so that a request
// carried in a plan file passes the same gate as one written in TOML.
// A vocabulary for bundles and config, too: flaw_in_*() say the same thing everywhere.
namespace sandbox::profile {

// linux/binfmts.h MAX_ARG_STRLEN: the kernel takes no longer argument or environment item.
inline constexpr std::size_t kMostItemBytes = 128U << 10;
// All of argv together, 1 MiB; the wire's class OPEN has the same ceiling (docs/protocol.md).
// execve(2) takes a quarter of the stack's limit, 2 MiB where that is the usual 8 MiB.
inline constexpr std::size_t kMostArgvBytes = 1U << 20;
inline constexpr std::size_t kMostPathBytes = 4095;  // linux/limits.h PATH_MAX less the NUL
// Largest integer with a canonical JSON form (RFC 7493 section 2.2).
inline constexpr std::uint64_t kMostInteger = 9'007'199'254'740'991;

// All violations, sorted by place; empty: usable. Locations are looked up by key path, the nearest
// written ancestor otherwise; without any (a profile out of a plan) only keys are named. Pure: no
// file is looked at, so a path may still lead to nothing.
std::vector<Diagnostic> check(const Profile& profile, const Locations& where);

// The place of `key` or of its nearest ancestor that was written; an empty file when nothing was.
SourceLocation locate(const Locations& where, std::string_view key);

// Why `text` is not usable as such; nothing when it is. Written to follow the key in a sentence,
// and already escaped for a terminal.
struct Flaw {
    std::string code;
    std::string message;
    std::string hint;
};
std::optional<Flaw> flaw_in_label(std::string_view text);     // DNS label, RFC 1123
std::optional<Flaw> flaw_in_path(std::string_view text);      // absolute, normal, bounded
std::optional<Flaw> flaw_in_text(std::string_view text);      // UTF-8 without control characters
std::optional<Flaw> flaw_in_env_name(std::string_view text);  // [A-Za-z_][A-Za-z0-9_.-]*
std::optional<Flaw> flaw_in_capability(std::string_view text);

// "3,0-1,2" -> "0-3". Nothing for syntax errors and CPUs above 8191: CONFIG_NR_CPUS is 8192 with
// CONFIG_MAXSMP, the most that Linux takes on x86.
std::optional<std::string> canonical_cpuset(std::string_view text);
// Both as canonical_cpuset() writes them; false for anything else.
bool cpuset_within(std::string_view inner, std::string_view outer);

// The names capabilities(7) lists, with the "CAP_" prefix; those of setrlimit(2) in lower case.
// Literals: valid for ever. A name that is newer than these lists is refused, never passed on.
std::span<const std::string_view> capability_names() noexcept;
std::span<const std::string_view> rlimit_names() noexcept;

}  // namespace sandbox::profile
