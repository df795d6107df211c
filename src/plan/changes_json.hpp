// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "canon/json.hpp"
#include "plan/plan.hpp"

// The changes of a plan as JSON.
// Beside plan.hpp, which stays free of the JSON library.
namespace sandbox::plan {

// [{"key","from","to","class"}], as `plan --diff`, `apply` and the API show it.
canon::Json to_json(const std::vector<Change>& changes);

}  // namespace sandbox::plan
