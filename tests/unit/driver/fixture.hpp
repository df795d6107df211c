// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "driver/oci/compile.hpp"
#include "plan/plan.hpp"

namespace sandbox::driver::test {

// A plan as the resolver would make it for `isolation = "sandbox"` and nothing else said.
plan::PlanContent plain_content();
// One that uses every field.
plan::PlanContent full_content();
plan::ExecutionPlan sealed(plan::PlanContent content);

Binding sample_binding();

}  // namespace sandbox::driver::test
