// SPDX-License-Identifier: Apache-2.0
#include "resolve/steps.hpp"

namespace sandbox::resolve {

void resolve_network(Draft& draft)
{
    plan::NetworkPlan& network = draft.plan.network;
    network.mode = draft.profile().network.mode;
    network.hostname = draft.profile().name;
    // Said in the plan, to people and in the audit log: it is the widest thing a profile may ask
    // for.
    if (network.mode == profile::NetworkMode::host) {
        draft.plan.warnings.push_back(
            "shares the host's network: reaches every service the host reaches, loopback and "
            "abstract sockets included");
    }
}

}  // namespace sandbox::resolve
