// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "audit/audit.hpp"
#include "base/diagnostic.hpp"
#include "facts/facts.hpp"
#include "plan/plan.hpp"
#include "policy/policy.hpp"
#include "profile/types.hpp"

// (request, policy, facts) -> plan or denials. Pure: no clock, environment or file system.
namespace sandbox::resolve {

// Closed; the words are part of the API. Adding one is a change of docs/api.md.
enum class DenialClass {
    invalid_profile,
    policy_denied,
    unsupported_requirement,
    required_control_unavailable,
    backend_unavailable,
    backend_artifact_mismatch,
};
std::string_view to_string(DenialClass value) noexcept;  // "POLICY_DENIED"

// One reason why there is no plan. Never thrown away: all of them are told at once.
struct Denial {
    DenialClass denial_class = DenialClass::invalid_profile;
    std::string reason;       // stable, kebab-case: "driver-not-permitted"
    std::string key;          // profile key path
    std::string requirement;  // what the profile states, in words
    std::string fact;         // the fact or bundle that failed it: "kvm.guest: gap (…)"
    std::string mend;         // what to do
    SourceLocation source;    // of the profile key, or of the bundle line that refuses
    bool operator==(const Denial&) const = default;
};

// A profile and where each key was written; no places at all for one that no person wrote.
struct Request {
    profile::Profile profile;
    profile::Locations where;
};

using Resolution = std::variant<plan::ExecutionPlan, std::vector<Denial>>;

// All denials at once, in a stable order. A broken bundle denies everything. Same inputs, same
// bytes. Never fails otherwise, and never has both.
Resolution resolve(const Request& request, const policy::EffectivePolicy& policy,
                   const facts::CapabilitySnapshot& facts);

canon::Json to_json(const std::vector<Denial>& denials);  // {"denials":[…]}, design contract
std::string render(const std::vector<Denial>& denials);   // for people

// The audit log's view of a refusal.
audit::Denied to_audit(const Request& request, const policy::EffectivePolicy& policy,
                       const std::vector<Denial>& denials);

}  // namespace sandbox::resolve
