// SPDX-License-Identifier: Apache-2.0
#include "shim/health.hpp"

#include <array>

namespace sandbox::shim {

std::string_view to_string(Health health) noexcept
{
    constexpr std::array<std::string_view, 3> kWords{"starting", "healthy", "unhealthy"};
    return kWords.at(static_cast<std::size_t>(health));
}

std::optional<Health> HealthRecord::become(Health next)
{
    if (next == health_) return std::nullopt;
    health_ = next;
    return next;
}

std::optional<Health> HealthRecord::passed()
{
    failures_ = 0;
    detail_.clear();
    return become(Health::healthy);
}

std::optional<Health> HealthRecord::failed(std::string detail)
{
    detail_ = std::move(detail);
    // Only the word of the latest check is kept: a log of all would fill with what is the same.
    // A check that fails for years must not come round to 0.
    if (failures_ < UINT32_MAX) ++failures_;
    if (failures_ < retries_) return std::nullopt;
    return become(Health::unhealthy);
}

}  // namespace sandbox::shim
