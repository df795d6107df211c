// SPDX-License-Identifier: Apache-2.0
#include "resolve/draft.hpp"

#include "profile/check.hpp"

namespace sandbox::resolve {

using facts::FactStatus;

bool Draft::is_written(std::string_view key) const
{
    return request_.where.contains(std::string(key));
}

bool Draft::rely_on(std::string_view fact)
{
    const facts::Fact* found = facts_.find(fact);
    // A fact that is not in the snapshot is not recorded: there is nothing to compare it with
    // later.
    if (found == nullptr) return false;
    // Status and value, no evidence: evidence differs between two probes of the same host.
    plan.facts[std::string(fact)] = {std::string(facts::to_string(found->status)), found->value};
    return found->status == FactStatus::ok;
}

std::string Draft::value_of(std::string_view fact)
{
    rely_on(fact);
    const facts::Fact* found = facts_.find(fact);
    // A note informs: its value may be used, though nothing is promised by it.
    if (found == nullptr || found->status == FactStatus::gap) return {};
    return found->value;
}

std::string Draft::describe(std::string_view fact) const
{
    const facts::Fact* found = facts_.find(fact);
    if (found == nullptr) return std::string(fact) + ": not probed";
    std::string text = std::string(fact) + ": " + std::string(facts::to_string(found->status));
    // Evidence says more than the value where there is some.
    const std::string& detail = found->evidence.empty() ? found->value : found->evidence;
    if (!detail.empty()) text += " (" + detail + ")";
    return text;
}

bool Draft::require(std::string_view fact, std::string_view reason, std::string_view key,
                    std::string_view requirement, DenialClass denial_class)
{
    if (rely_on(fact)) return true;
    deny({.denial_class = denial_class,
          .reason = std::string(reason),
          .key = std::string(key),
          .requirement = std::string(requirement),
          .fact = describe(fact),
          .mend = std::string(facts::mend(fact)),
          .source = {}});
    return false;
}

void Draft::deny(Denial denial)
{
    // The key's own line first, else its nearest ancestor's.
    if (denial.source.file.empty()) {
        denial.source = profile::locate(request_.where, denial.key);
        // A default was written nowhere; the file it was left out of is still worth naming.
        if (denial.source.file.empty() && !request_.where.empty()) {
            denial.source.file = request_.where.begin()->second.file;
        }
    }
    denials_.push_back(std::move(denial));
}

}  // namespace sandbox::resolve
