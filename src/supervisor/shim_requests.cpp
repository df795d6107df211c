// SPDX-License-Identifier: Apache-2.0
#include "supervisor/shim_requests.hpp"

namespace sandbox::supervisor {

Error dead_shim(const ledger::Sandbox& sandbox)
{
    return {Code::unavailable, sandbox.name.str() + " has no living shim (state " +
                                   std::string(ledger::to_string(sandbox.state)) +
                                   "): run 'sandboxctl reconcile'"};
}

Error does_not_run(const ledger::Sandbox& sandbox)
{
    return {Code::conflict, sandbox.name.str() + " does not run (state " +
                                std::string(ledger::to_string(sandbox.state)) + ")"};
}

Status expect_accepted(ShimConnection& connection, const shim::Request& request)
{
    // Strictly one answer for one request: a connection carries one conversation.
    TRY_VOID(connection.send(request));
    const auto reply = TRY(connection.receive(sys::Deadline::after(kShimAnswer)));
    if (reply && std::holds_alternative<shim::Accepted>(*reply)) return {};
    if (reply) {
        if (const auto* rejected = std::get_if<shim::Rejected>(&*reply)) {
            return fail(Code::conflict, rejected->why);
        }
    }
    return fail(Code::unavailable, "the shim ended before it answered");
}

}  // namespace sandbox::supervisor
