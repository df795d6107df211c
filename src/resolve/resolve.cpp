// SPDX-License-Identifier: Apache-2.0
#include "resolve/resolve.hpp"

#include "profile/check.hpp"
#include "resolve/microvm.hpp"
#include "resolve/steps.hpp"

namespace sandbox::resolve {

namespace {

std::vector<Denial> not_representable(const Error& error)
{
    return {{.denial_class = DenialClass::invalid_profile,
             .reason = "not-representable",
             .key = "",
             .requirement = "every value has a canonical form (RFC 8785)",
             .fact = error.message(),
             .mend = "use UTF-8 text and numbers of at most 9007199254740991",
             .source = {}}};
}

}  // namespace

void check_profile(Draft& draft)
{
    // Without places: a plan file has keys, and no lines that a person wrote.
    // A request carried in a plan file passes the same gate as one read from TOML.
    for (const Diagnostic& flaw : profile::check(draft.profile(), {})) {
        draft.deny({.denial_class = DenialClass::invalid_profile,
                    .reason = flaw.code,
                    .key = flaw.key,
                    .requirement = flaw.message,
                    .fact = "",
                    .mend = flaw.hint,
                    .source = {}});
    }
}

Resolution resolve(const Request& request, const policy::EffectivePolicy& policy,
                   const facts::CapabilitySnapshot& facts)
{
    // Each step sees what the ones before it decided; the order is that of steps.hpp.
    Draft draft(request, policy, facts);
    check_profile(draft);
    resolve_driver(draft);
    check_unsupported(draft);
    resolve_process(draft);
    resolve_rootfs(draft);
    resolve_mounts(draft);
    resolve_secrets(draft);
    if (draft.plan.driver == profile::Driver::microvm) resolve_shares(draft);
    resolve_network(draft);
    resolve_resources(draft);
    resolve_security(draft);
    check_policy(draft);
    // Past here nothing is decided: the plan is complete, or it is not made. A denied plan is never
    // sealed, so nobody can launch it by mistake.
    if (draft.denied()) {
        std::vector<Denial> denials = std::move(draft).take_denials();
        order(denials);
        return denials;
    }
    list_controls(draft);
    // Sealing gives the canonical form and the digest; from here on nothing can change it.
    auto sealed = plan::ExecutionPlan::seal(std::move(draft.plan));
    // The last thing that can fail: text that no JSON can hold, or a number above 2^53 - 1.
    if (!sealed) return not_representable(sealed.error());
    return *std::move(sealed);
}

}  // namespace sandbox::resolve
