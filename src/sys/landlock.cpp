// SPDX-License-Identifier: Apache-2.0
#include "sys/landlock.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace sandbox::sys {

namespace {

// uapi/linux/landlock.h of 6.18: the structures grew, the numbers did not change.
struct RulesetAttr {
    std::uint64_t handled_fs;
    std::uint64_t handled_net;  // ABI 4
    std::uint64_t scoped;       // ABI 6
};
struct __attribute__((packed)) PathBeneathAttr {
    std::uint64_t allowed;
    std::int32_t parent_fd;
};
struct NetPortAttr {
    std::uint64_t allowed;
    std::uint64_t port;
};
constexpr unsigned kCreateRulesetVersion = 1;  // LANDLOCK_CREATE_RULESET_VERSION
constexpr int kRulePathBeneath = 1;
constexpr int kRuleNetPort = 2;

std::size_t attr_size(int abi)
{
    if (abi >= 6) return sizeof(RulesetAttr);
    return abi >= 4 ? 2 * sizeof(std::uint64_t) : sizeof(std::uint64_t);
}

int fits(const LandlockRules& rules) noexcept
{
    // Planned for a newer kernel: weaker rules would be in force than the plan says.
    if (rules.abi <= 0 || rules.abi > landlock_abi()) return EOPNOTSUPP;
    const bool known = (rules.handled_fs & ~landlock::all_fs(rules.abi)) == 0 &&
                       (rules.handled_net & ~landlock::all_net(rules.abi)) == 0 &&
                       (rules.scopes & ~landlock::all_scopes(rules.abi)) == 0;
    return known ? 0 : EINVAL;
}

int add_path(int ruleset, const LandlockPathRule& rule) noexcept
{
    // Raw, not open_at(): no allocation between fork and exec, so no Result with its strings.
    const int raw = ::openat(AT_FDCWD, rule.path.c_str(), O_PATH | O_CLOEXEC);
    if (raw < 0) return errno;
    const UniqueFd parent(raw);
    struct stat info{};
    if (::fstat(parent.get(), &info) != 0) return errno;
    PathBeneathAttr attr{rule.access, parent.get()};
    // Folder rights on a file are EINVAL; what the rule means for a file is the rest.
    if (!S_ISDIR(info.st_mode)) attr.allowed = landlock::file_only(rule.access);
    // A rule that gives nothing is refused by the kernel (ENOMSG) and says nothing.
    if (attr.allowed == 0) return 0;
    return ::syscall(SYS_landlock_add_rule, ruleset, kRulePathBeneath, &attr, 0U) == 0 ? 0 : errno;
}

// The ruleset's number or -errno. Async-signal-safe.
int build(const LandlockRules& rules, const char** failed_path) noexcept
{
    if (const int bad = fits(rules)) return -bad;
    const RulesetAttr attr{rules.handled_fs, rules.handled_net, rules.scopes};
    const long made = ::syscall(SYS_landlock_create_ruleset, &attr, attr_size(rules.abi), 0U);
    if (made < 0) return -errno;
    UniqueFd ruleset(static_cast<int>(made));
    for (const LandlockPathRule& rule : rules.paths) {
        const int bad = add_path(ruleset.get(), rule);
        if (bad == 0) continue;
        if (failed_path != nullptr) *failed_path = rule.path.c_str();
        return -bad;
    }
    for (const LandlockPortRule& rule : rules.ports) {
        const NetPortAttr port{rule.access, rule.port};
        if (::syscall(SYS_landlock_add_rule, ruleset.get(), kRuleNetPort, &port, 0U) != 0)
            return -errno;
    }
    return ruleset.release();
}

}  // namespace

// The kernel's own answer, not its version: a distribution may switch Landlock off.
int landlock_abi() noexcept
{
    const long abi = ::syscall(SYS_landlock_create_ruleset, nullptr, 0UL, kCreateRulesetVersion);
    return abi < 0 ? 0 : static_cast<int>(abi);
}

namespace landlock {

std::uint64_t all_fs(int abi) noexcept
{
    if (abi <= 0) return 0;
    // ABI 1 has bits 0 to 12 (EXECUTE … MAKE_SYM).
    std::uint64_t bits = (1U << 13) - 1;
    if (abi >= 2) bits |= kRefer;
    if (abi >= 3) bits |= kTruncate;
    if (abi >= 5) bits |= kIoctlDev;
    return bits;
}

std::uint64_t all_net(int abi) noexcept { return abi >= 4 ? kNetBind | kNetConnect : 0; }

std::uint64_t all_scopes(int abi) noexcept
{
    return abi >= 6 ? kScopeAbstractUnix | kScopeSignal : 0;
}

std::uint64_t file_only(std::uint64_t access) noexcept
{
    return access & (kExecute | kWriteFile | kReadFile | kTruncate | kIoctlDev);
}

}  // namespace landlock

Result<UniqueFd> make_ruleset(const LandlockRules& rules)
{
    const char* path = nullptr;
    const int made = build(rules, &path);
    if (made >= 0) return UniqueFd(made);
    return fail(Error::from_errno(-made, "landlock", path != nullptr ? path : "ruleset"));
}

int restrict_self(int ruleset) noexcept
{
    // PRIVILEGED: irreversible for this thread and all it makes; it can only take access away. Only
    // this thread: callers have one.
    return ::syscall(SYS_landlock_restrict_self, ruleset, 0U) == 0 ? 0 : errno;
}

int apply_landlock(const LandlockRules& rules, const char** failed_path) noexcept
{
    const int made = build(rules, failed_path);
    if (made < 0) return -made;
    const UniqueFd ruleset(made);
    return restrict_self(ruleset.get());
}

}  // namespace sandbox::sys
