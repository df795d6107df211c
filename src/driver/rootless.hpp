// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "plan/plan.hpp"

namespace sandbox::driver {

// Planned for a host where the launcher is an ordinary user: the shim is root of a user namespace of
// its own only. The plan says so itself, as the fact it relies on ("host.privilege", facts.hpp).
inline bool is_rootless(const plan::PlanContent& plan)
{
    const auto fact = plan.facts.find("host.privilege");
    return fact != plan.facts.end() && fact->second.value == "user";
}

}  // namespace sandbox::driver
