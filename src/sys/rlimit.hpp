// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.hpp"

namespace sandbox::sys {

// RLIM_INFINITY is the largest value, in both fields.
struct Rlimit {
    int resource = 0;  // RLIMIT_*
    std::uint64_t soft = 0;
    std::uint64_t hard = 0;
    bool operator==(const Rlimit&) const = default;
};

// "nofile", "nproc", "core", … as profiles spell them. Nothing for an unknown name.
std::optional<int> rlimit_number(std::string_view name) noexcept;
std::string_view rlimit_name(int resource) noexcept;  // empty when unknown
[[nodiscard]] Result<Rlimit> get_rlimit(int resource);
// Async-signal-safe: 0 or an errno.
int apply_rlimit(const Rlimit& limit) noexcept;

}  // namespace sandbox::sys
