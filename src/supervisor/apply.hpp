// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "supervisor/desired.hpp"
#include "supervisor/drop_ins.hpp"
#include "supervisor/embedded.hpp"

// The hands of desired::diff.
namespace sandbox::supervisor {

// One file, resolved: what it wants, or why it wants nothing that can be had. A value: nothing here
// refers to the host any more.
struct Resolved {
    desired::Wanted wanted;
    ProfileErrors errors;
    std::vector<resolve::Denial> denials;
};

// Files as the service resolves them today. A file of profiles.d belongs there when it asks for
// autostart; `only_autostart` leaves the others lying.
// all: every file is to run; only_autostart: those that ask for it, the rest is left lying.
enum class Start { all, only_autostart };
[[nodiscard]] std::vector<Resolved> resolve_files(const Host& host,
                                                  const std::vector<DropIn>& files, Start start);

// Reads the ledger, decides, and unless it only looks, acts: one apply at a time on this state.
// `told` is what a former pass complained of: the same again is not written into the audit log a
// second time. `failed` are digests of plans that it could not put in place of what ran: the same
// plan is not tried again, so that no pass ends what runs well only to bring it back.
struct ApplyOrder {
    std::vector<Resolved> files;
    desired::Scope scope;
    ApplyRequest::Mode mode = ApplyRequest::Mode::act;
    std::string told;
    std::set<std::string> failed;
};
[[nodiscard]] Result<ApplyResult> carry_out(EmbeddedService& service, const ApplyOrder& order);

// Digests for `failed` of the next pass.
std::set<std::string> failed_replacements(const ApplyOrder& order, const ApplyResult& result);

// What is wrong with an item or with all of a result, as text; empty: nothing.
std::string complaint_of(const Applied& item);
std::string complaints(const ApplyResult& result);

}  // namespace sandbox::supervisor
