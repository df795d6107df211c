// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "plan/plan.hpp"

// The one spelling of each enumerator of a plan, in enumerator order: a word in a file is its index
// here. A new enumerator goes to the end of both.
namespace sandbox::plan {

inline constexpr std::array<std::string_view, 3> kIsolationClasses{"shared-kernel", "emulated-vm",
                                                                   "hardware-vm"};
inline constexpr std::array<std::string_view, 3> kCgroupVersions{"none", "v1", "v2"};
inline constexpr std::array<std::string_view, 2> kAccelerators{"kvm", "tcg"};
inline constexpr std::array<std::string_view, 2> kRootfsStrategies{"host-tree", "overlay-tmpfs"};
inline constexpr std::array<std::string_view, 3> kOwnerships{"overflow", "idmap-user", "idmap-all"};

// In range by construction: decoders only make enumerators that have a name.
template <class Enum>
constexpr std::size_t index(Enum value) noexcept
{
    return static_cast<std::size_t>(value);
}

// Nothing for a word that is not one of them; the caller says where it stood.
template <class Enum, std::size_t N>
std::optional<Enum> from_spelling(const std::array<std::string_view, N>& names,
                                  std::string_view text) noexcept
{
    const auto found = std::find(names.begin(), names.end(), text);
    if (found == names.end()) return std::nullopt;
    return static_cast<Enum>(found - names.begin());
}

}  // namespace sandbox::plan
