// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "plan/plan.hpp"

namespace sandbox::plan {

// Every key present, absent values null; docs/formats/plan.md. Cannot fail, and is not canonical
// yet: canon::serialize() does that, and refuses text that is not UTF-8 (corrupt) and integers
// beyond 2^53-1 (invalid_argument).
canon::Json content_json(const PlanContent& content);

// Strict: `content_json` of the result equals `json`, or it is refused. corrupt: a key is missing,
// unknown or of another type, with the place; whatever profile::from_json() says of the request.
[[nodiscard]] Result<PlanContent> content_from_json(const canon::Json& json);

}  // namespace sandbox::plan
