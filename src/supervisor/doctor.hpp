// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "canon/canon.hpp"
#include "facts/facts.hpp"
#include "policy/policy.hpp"
#include "resolve/resolve.hpp"

// Judges a snapshot for people: what each fact is for, and how to mend what is missing. Pure:
// everything it says follows from its input.
namespace sandbox::supervisor {

// Serious findings make `doctor` exit 1; warnings and notes do not. The order is that of weight.
enum class Severity { ok, note, warning, serious };
std::string_view to_string(Severity severity) noexcept;

struct Finding {
    std::string name;   // fact name, advisory id, "policy.NAME", "profile.KEY"
    Severity severity = Severity::note;
    std::string value;
    std::string evidence;
    std::string why;    // what it is needed for
    std::string mend;   // what to do; empty when nothing is to be done
};

struct DoctorInput {
    facts::CapabilitySnapshot snapshot;
    std::vector<policy::LocatedBundle> bundles;
    std::vector<policy::BrokenBundle> broken;
    std::string now;  // RFC 3339, UTC: "2026-01-31T10:00:00Z"
    // With a profile: its name, and the denials its resolution gave (none: it would run).
    std::optional<std::string> profile;
    std::vector<resolve::Denial> denials;
};

struct DoctorReport {
    std::vector<Finding> facts;       // one for each fact, in order of name
    std::vector<Finding> advisories;  // of pinned tools
    std::vector<Finding> duties;      // of the operator: SMT, KSM, swap, mitigations, …
    std::vector<Finding> policy;      // expired and broken bundles
    std::vector<Finding> user;  // what launches by this user would need; empty for root
    std::vector<Finding> profile;     // denials of the profile asked about
    std::optional<std::string> profile_name;
};

// Never fails and reads nothing but its input: what cannot be judged is a finding.
DoctorReport examine(const DoctorInput& input);

// 1 with a profile that is denied, a broken bundle, or no usable default driver; else 0.
int exit_status(const DoctorReport& report);
std::string render(const DoctorReport& report);
canon::Json to_json(const DoctorReport& report);

// Past `valid_until` (a date counts to its end, UTC)? A text of another shape counts as past.
bool is_past(std::string_view valid_until, std::string_view now);

// What a fact is for and how to mend its gap; empty texts for a name nobody knows. The views point
// to literals.
struct FactHelp {
    std::string_view why;
    std::string_view mend;
};
FactHelp help_for(std::string_view fact);

}  // namespace sandbox::supervisor
