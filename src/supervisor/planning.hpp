// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.hpp"
#include "supervisor/host.hpp"
#include "supervisor/service.hpp"

// From a profile's text to a plan or the reasons there is none. Pure given the host: no file is
// opened and no clock is read, so a plan made here and one made elsewhere can be compared.
namespace sandbox::supervisor {

// Parses, lays the overlay and the invocation's own words over it, resolves.
[[nodiscard]] PlanOutcome make_plan(const Host& host, const ProfileText& profile,
                                    const Adjustments& adjustments,
                                    const facts::CapabilitySnapshot* elsewhere);

// A plan file proves what was planned, not that it is permitted: its request is resolved again
// today and must give the same bytes. Otherwise Code::denied, naming the keys that differ. corrupt:
// no plan file, or an edited one.
[[nodiscard]] Result<PlanOutcome> make_plan_again(const Host& host, std::string_view plan_file);

}  // namespace sandbox::supervisor
