// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "resolve/resolve.hpp"

namespace sandbox::resolve {

// A plan in the making and all that speaks against it. Each step reads the three inputs, fills its
// own part of the plan and adds its denials; none stops at the first. Requires: the inputs outlive
// this. A value of one call; nothing of it is shared.
class Draft {
public:
    Draft(const Request& request, const policy::EffectivePolicy& policy,
          const facts::CapabilitySnapshot& facts)
        : request_(request), policy_(policy), facts_(facts)
    {
        plan.request = request.profile;
    }

    const profile::Profile& profile() const noexcept { return request_.profile; }
    const policy::EffectivePolicy& policy() const noexcept { return policy_; }

    // Was the key written, or is it a default?
    bool is_written(std::string_view key) const;

    // True when the fact is ok. The fact is recorded in the plan as relied on.
    bool rely_on(std::string_view fact);
    // The fact's value, recorded too; empty unless ok, or a note where notes inform.
    std::string value_of(std::string_view fact);
    // As rely_on; a fact that is not ok denies the launch with the fact's own mend.
    bool require(std::string_view fact, std::string_view reason, std::string_view key,
                 std::string_view requirement,
                 DenialClass denial_class = DenialClass::required_control_unavailable);

    // "kvm.guest: gap (what was seen)"; never recorded: evidence does not enter plans.
    std::string describe(std::string_view fact) const;

    // An empty source becomes the place of the key, or of its nearest written ancestor.
    void deny(Denial denial);
    bool denied() const noexcept { return !denials_.empty(); }
    std::vector<Denial> take_denials() && { return std::move(denials_); }

    // Open to the steps, which are its only readers until it is sealed.
    plan::PlanContent plan;

private:
    const Request& request_;
    const policy::EffectivePolicy& policy_;
    const facts::CapabilitySnapshot& facts_;
    std::vector<Denial> denials_;
};

}  // namespace sandbox::resolve
