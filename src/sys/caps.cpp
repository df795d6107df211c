// SPDX-License-Identifier: Apache-2.0
#include "sys/caps.hpp"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace sandbox::sys {

namespace {

// linux/capability.h, in number order; 40 is the last one of 6.18.
// clang-format off: a table
constexpr std::array<std::string_view, 41> kNames{
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID",
    "CAP_KILL", "CAP_SETGID", "CAP_SETUID", "CAP_SETPCAP", "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_IPC_LOCK",
    "CAP_IPC_OWNER", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT", "CAP_SYS_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_NICE", "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_MKNOD", "CAP_LEASE", "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL", "CAP_SETFCAP", "CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN", "CAP_SYSLOG",
    "CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND", "CAP_AUDIT_READ", "CAP_PERFMON", "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE"};
// clang-format on

// A set is two 32-bit words in the kernel's call (capset(2), version 3).
// Two 32-bit words hold 64 numbers.
constexpr int kMaxCap = 63;

std::uint32_t low(CapSet set) { return static_cast<std::uint32_t>(set & 0xffffffffU); }

std::uint32_t high(CapSet set) { return static_cast<std::uint32_t>(set >> 32); }

CapSet join(std::uint32_t lower, std::uint32_t upper)
{
    return CapSet{lower} | CapSet{upper} << 32;
}

int prctl_value(int option, unsigned long one, unsigned long two = 0) noexcept
{
    return ::prctl(option, one, two, 0UL, 0UL);
}

}  // namespace

std::optional<int> cap_number(std::string_view name) noexcept
{
    for (std::size_t at = 0; at < kNames.size(); ++at)
        if (kNames[at] == name) return static_cast<int>(at);
    return std::nullopt;
}

std::string_view cap_name(int number) noexcept
{
    if (number < 0 || static_cast<std::size_t>(number) >= kNames.size()) return {};
    return kNames[static_cast<std::size_t>(number)];
}

std::span<const std::string_view> all_cap_names() noexcept { return kNames; }

Result<CapSet> cap_set(std::span<const std::string> names)
{
    CapSet set = 0;
    for (const std::string& name : names) {
        const auto number = cap_number(name);
        if (!number) return fail(Code::invalid_argument, "no such capability: " + name);
        set |= CapSet{1} << *number;
    }
    return set;
}

std::vector<std::string> cap_names(CapSet set)
{
    std::vector<std::string> names;
    for (int number = 0; number <= kMaxCap; ++number) {
        if ((set >> number & 1U) == 0) continue;
        const std::string_view name = cap_name(number);
        // A kernel newer than our table: a number is better than a gap.
        names.push_back(name.empty() ? "CAP_" + std::to_string(number) : std::string(name));
    }
    return names;
}

Result<CapState> get_caps()
{
    // Pid 0 is the calling thread.
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2] = {};
    if (::syscall(SYS_capget, &header, data) != 0) return fail_errno("capget");
    return CapState{join(data[0].effective, data[1].effective),
                    join(data[0].permitted, data[1].permitted),
                    join(data[0].inheritable, data[1].inheritable)};
}

int apply_caps(const CapState& state) noexcept
{
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    const __user_cap_data_struct data[2] = {
        {low(state.effective), low(state.permitted), low(state.inheritable)},
        {high(state.effective), high(state.permitted), high(state.inheritable)}};
    return ::syscall(SYS_capset, &header, data) == 0 ? 0 : errno;
}

int drop_bounding(CapSet keep) noexcept
{
    for (int number = 0; number <= kMaxCap; ++number) {
        if ((keep >> number & 1U) != 0) continue;
        // EINVAL ends the list: this kernel has no such number, nor any above it. Reading first
        // keeps a child that has nothing left to drop independent of CAP_SETPCAP.
        const int held = prctl_value(PR_CAPBSET_READ, static_cast<unsigned long>(number));
        if (held < 0) return errno == EINVAL ? 0 : errno;
        if (held == 0) continue;
        if (prctl_value(PR_CAPBSET_DROP, static_cast<unsigned long>(number)) != 0) return errno;
    }
    return 0;
}

int set_ambient(CapSet set) noexcept
{
    // First, so that a set that fails half-way has no more than was asked for.
    if (prctl_value(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL) != 0) return errno;
    for (int number = 0; number <= kMaxCap; ++number) {
        if ((set >> number & 1U) == 0) continue;
        // Raised only where permitted and inheritable have it, capabilities(7).
        if (prctl_value(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, static_cast<unsigned long>(number)) !=
            0)
            return errno;
    }
    return 0;
}

int set_no_new_privs() noexcept { return prctl_value(PR_SET_NO_NEW_PRIVS, 1) == 0 ? 0 : errno; }

}  // namespace sandbox::sys
