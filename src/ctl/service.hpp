// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/result.hpp"
#include "ctl/verbs.hpp"
#include "supervisor/embedded.hpp"
#include "supervisor/service.hpp"

namespace sandbox::ctl {

// The daemon of this root where one answers, else the same library in this process. Both act on the
// same ledger: which of the two it is changes nothing but who does the work. `need` says how much
// of the host an embedded service reads. Errors are those of EmbeddedService::open().
[[nodiscard]] Result<std::unique_ptr<supervisor::SandboxService>> open_service(
    const Context& context, supervisor::Need need);

// For whoever answers next and then ends: the process's end closes ledger and sockets faster than
// they are taken apart one by one.
inline void leave_open(std::unique_ptr<supervisor::SandboxService> service)
{
    static_cast<void>(service.release());
}

}  // namespace sandbox::ctl
