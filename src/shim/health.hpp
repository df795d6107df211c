// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// How a sandbox's health follows from its checks. Pure; running them is health_check.hpp's.
namespace sandbox::shim {

// The words of health.json and of the audit event.
enum class Health { starting, healthy, unhealthy };
std::string_view to_string(Health health) noexcept;

// Counts failures in a row. `starting` until the first check that passes or until so many failed.
class HealthRecord {
public:
    explicit HealthRecord(std::uint32_t retries) : retries_(retries) {}

    Health health() const noexcept { return health_; }
    std::uint32_t failures() const noexcept { return failures_; }
    const std::string& detail() const noexcept { return detail_; }  // of the latest check

    // Each returns the health when it has just changed.
    std::optional<Health> passed();
    std::optional<Health> failed(std::string detail);

private:
    std::optional<Health> become(Health next);

    std::uint32_t retries_;
    Health health_ = Health::starting;
    std::uint32_t failures_ = 0;
    std::string detail_;
};

}  // namespace sandbox::shim
