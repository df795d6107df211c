// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/result.hpp"
#include "ctl/verbs.hpp"
#include "supervisor/embedded.hpp"
#include "supervisor/service.hpp"

namespace sandbox::ctl {

// The daemon of this root where one answers, else the same library in this process. Both act on
// the same ledger: which of the two it is changes nothing but who does the work.
[[nodiscard]] Result<std::unique_ptr<supervisor::SandboxService>> open_service(
    const Context& context, supervisor::Need need);

}  // namespace sandbox::ctl
