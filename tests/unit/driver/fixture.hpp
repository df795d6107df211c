// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "driver/oci/compile.hpp"
#include "plan/plan.hpp"

namespace sandbox::driver::test {

// A plan as the resolver would make it for `isolation = "sandbox"` and nothing else said.
plan::PlanContent plain_content(profile::Driver driver = profile::Driver::oci);
// One that uses every field.
plan::PlanContent full_content(profile::Driver driver = profile::Driver::oci);
plan::ExecutionPlan sealed(plan::PlanContent content);

Binding sample_binding();

struct Mutation {
    const char* name;
    std::function<void(plan::PlanContent&)> change;
};
// One for every field of the plan that a driver of the host's kernel enforces.
std::vector<Mutation> mutations();

// Compares with DIR/NAME.json; SANDBOX_ACCEPT=1 rewrites it and skips.
void expect_golden(const std::string& name, const std::string& text);
// A bootstrap record in hex without its filter, which has tests and digests of its own.
std::string without_filter(const std::string& bootstrap);

}  // namespace sandbox::driver::test
