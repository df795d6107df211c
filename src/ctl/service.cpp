// SPDX-License-Identifier: Apache-2.0
#include "ctl/service.hpp"

namespace sandbox::ctl {

Result<std::unique_ptr<supervisor::SandboxService>> open_service(const Context& context,
                                                                 supervisor::Need need)
{
    return TRY(supervisor::EmbeddedService::open(supervisor::find_paths(context.root), need));
}

}  // namespace sandbox::ctl
