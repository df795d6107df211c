// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "profile/types.hpp"

// The one spelling of each enumerator, in enumerator order: for TOML, the normal form and plans
// alike. A spelling in the schema that is not here (or the reverse) fails a test. The spans are of
// literals: valid for ever.
namespace sandbox::profile {

std::span<const std::string_view> names_of(Isolation) noexcept;
std::span<const std::string_view> names_of(Driver) noexcept;
std::span<const std::string_view> names_of(MountType) noexcept;
std::span<const std::string_view> names_of(NetworkMode) noexcept;
std::span<const std::string_view> names_of(RuleAction) noexcept;
std::span<const std::string_view> names_of(Protocol) noexcept;
std::span<const std::string_view> names_of(SeccompProfile) noexcept;
std::span<const std::string_view> names_of(RestartPolicy) noexcept;
std::span<const std::string_view> names_of(ChangeClass) noexcept;

// Nothing for a word that is none of them. Exact: case counts, and so does every hyphen.
template <class Enum>
std::optional<Enum> from_name(std::string_view name) noexcept
{
    const auto names = names_of(Enum{});
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return std::nullopt;
    return static_cast<Enum>(found - names.begin());
}

}  // namespace sandbox::profile
