// SPDX-License-Identifier: Apache-2.0
#include "plan/names.hpp"

namespace sandbox::plan {

std::string_view to_string(IsolationClass value) noexcept
{
    return kIsolationClasses[index(value)];
}
std::string_view to_string(CgroupVersion value) noexcept { return kCgroupVersions[index(value)]; }
std::string_view to_string(Accelerator value) noexcept { return kAccelerators[index(value)]; }
std::string_view to_string(RootfsStrategy value) noexcept
{
    return kRootfsStrategies[index(value)];
}
std::string_view to_string(Ownership value) noexcept { return kOwnerships[index(value)]; }

}  // namespace sandbox::plan
