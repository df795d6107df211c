// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "plan/plan.hpp"

namespace sandbox::plan {

// Every key present, absent values null; docs/formats/plan.md.
canon::Json content_json(const PlanContent& content);

// Strict; `content_json` of the result equals `json`.
[[nodiscard]] Result<PlanContent> content_from_json(const canon::Json& json);

}  // namespace sandbox::plan
