// SPDX-License-Identifier: Apache-2.0
#include "profile/names.hpp"

namespace sandbox::profile {

namespace {

using namespace std::string_view_literals;

// In the order of the enumerators: a word's index is its value, from_name() below.
constexpr std::array kIsolation{"microvm"sv, "sandbox"sv};
constexpr std::array kDriver{"oci"sv, "microvm"sv, "native"sv};
constexpr std::array kMountType{"bind"sv, "volume"sv, "tmpfs"sv};
constexpr std::array kNetworkMode{"none"sv, "egress"sv, "host"sv};
constexpr std::array kRuleAction{"allow"sv, "deny"sv};
constexpr std::array kProtocol{"tcp"sv, "udp"sv};
constexpr std::array kSeccomp{"default"sv, "strict"sv};
constexpr std::array kRestart{"no"sv, "on-failure"sv, "always"sv};
constexpr std::array kChangeClass{"live"sv, "next-start"sv, "replace"sv};

template <class Enum>
std::string_view name_of(Enum value) noexcept
{
    const auto index = static_cast<std::size_t>(value);
    const auto names = names_of(value);
    // Never an index beyond: an enumerator that came from a cast must not read past the list.
    return index < names.size() ? names[index] : std::string_view("invalid");
}

}  // namespace

std::span<const std::string_view> names_of(Isolation) noexcept { return kIsolation; }
std::span<const std::string_view> names_of(Driver) noexcept { return kDriver; }
std::span<const std::string_view> names_of(MountType) noexcept { return kMountType; }
std::span<const std::string_view> names_of(NetworkMode) noexcept { return kNetworkMode; }
std::span<const std::string_view> names_of(RuleAction) noexcept { return kRuleAction; }
std::span<const std::string_view> names_of(Protocol) noexcept { return kProtocol; }
std::span<const std::string_view> names_of(SeccompProfile) noexcept { return kSeccomp; }
std::span<const std::string_view> names_of(RestartPolicy) noexcept { return kRestart; }
std::span<const std::string_view> names_of(ChangeClass) noexcept { return kChangeClass; }

std::string_view to_string(Isolation value) noexcept { return name_of(value); }
std::string_view to_string(Driver value) noexcept { return name_of(value); }
std::string_view to_string(MountType value) noexcept { return name_of(value); }
std::string_view to_string(NetworkMode value) noexcept { return name_of(value); }
std::string_view to_string(RuleAction value) noexcept { return name_of(value); }
std::string_view to_string(Protocol value) noexcept { return name_of(value); }
std::string_view to_string(SeccompProfile value) noexcept { return name_of(value); }
std::string_view to_string(RestartPolicy value) noexcept { return name_of(value); }
std::string_view to_string(ChangeClass value) noexcept { return name_of(value); }

}  // namespace sandbox::profile
