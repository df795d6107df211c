// SPDX-License-Identifier: Apache-2.0
#include "sys/rlimit.hpp"

#include <sys/resource.h>

#include <array>
#include <cerrno>
#include <string>

namespace sandbox::sys {

namespace {

struct Name {
    std::string_view name;
    int number;
};

// getrlimit(2); the spelling is the constant's, lower case, as in limits.conf and ulimit docs. The
// same names in profiles and plans.
constexpr std::array kNames{Name{"as", RLIMIT_AS},
                            Name{"core", RLIMIT_CORE},
                            Name{"cpu", RLIMIT_CPU},
                            Name{"data", RLIMIT_DATA},
                            Name{"fsize", RLIMIT_FSIZE},
                            Name{"locks", RLIMIT_LOCKS},
                            Name{"memlock", RLIMIT_MEMLOCK},
                            Name{"msgqueue", RLIMIT_MSGQUEUE},
                            Name{"nice", RLIMIT_NICE},
                            Name{"nofile", RLIMIT_NOFILE},
                            Name{"nproc", RLIMIT_NPROC},
                            Name{"rss", RLIMIT_RSS},
                            Name{"rtprio", RLIMIT_RTPRIO},
                            Name{"rttime", RLIMIT_RTTIME},
                            Name{"sigpending", RLIMIT_SIGPENDING},
                            Name{"stack", RLIMIT_STACK}};

}  // namespace

std::optional<int> rlimit_number(std::string_view name) noexcept
{
    for (const Name& entry : kNames)
        if (entry.name == name) return entry.number;
    return std::nullopt;
}

std::string_view rlimit_name(int resource) noexcept
{
    for (const Name& entry : kNames)
        if (entry.number == resource) return entry.name;
    return {};
}

Result<Rlimit> get_rlimit(int resource)
{
    rlimit value{};
    if (::getrlimit(static_cast<__rlimit_resource>(resource), &value) != 0)
        return fail_errno("getrlimit", rlimit_name(resource));
    return Rlimit{resource, value.rlim_cur, value.rlim_max};
}

int apply_rlimit(const Rlimit& limit) noexcept
{
    const rlimit value{limit.soft, limit.hard};
    const auto resource = static_cast<__rlimit_resource>(limit.resource);
    // Both limits at once: soft above hard is refused by the kernel.
    return ::setrlimit(resource, &value) == 0 ? 0 : errno;
}

}  // namespace sandbox::sys
