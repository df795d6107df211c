// SPDX-License-Identifier: Apache-2.0
#include "resolve/resolve.hpp"

#include <algorithm>
#include <array>
#include <tuple>

#include "canon/json.hpp"
#include "resolve/steps.hpp"

namespace sandbox::resolve {

using canon::Json;

namespace {

// The words of the API and the audit log, in the order of the enumerators.
constexpr std::array<std::string_view, 6> kClasses{
    "INVALID_PROFILE",         "POLICY_DENIED",
    "UNSUPPORTED_REQUIREMENT", "REQUIRED_CONTROL_UNAVAILABLE",
    "BACKEND_UNAVAILABLE",     "BACKEND_ARTIFACT_MISMATCH"};

auto rank(const Denial& denial)
{
    // A total order: two runs with the same input print the same text. The class comes first, so
    // that what is wrong with the profile stands before what is wrong with the host.
    return std::tie(denial.denial_class, denial.key, denial.reason, denial.fact, denial.requirement,
                    denial.mend, denial.source);
}

// FILE:LINE:COLUMN, as compilers have it: editors jump there.
std::string place(const SourceLocation& at)
{
    std::string text = at.file;
    if (at.line > 0) text += ":" + std::to_string(at.line);
    if (at.column > 0) text += ":" + std::to_string(at.column);
    return text;
}

}  // namespace

std::string_view to_string(DenialClass value) noexcept
{
    // In range: the enumerators are those of the array.
    return kClasses[static_cast<std::size_t>(value)];
}

void order(std::vector<Denial>& denials)
{
    std::sort(denials.begin(), denials.end(),
              [](const Denial& a, const Denial& b) { return rank(a) < rank(b); });
    // Two steps may find the same thing; a person reads it once.
    denials.erase(std::unique(denials.begin(), denials.end()), denials.end());
}

Json to_json(const std::vector<Denial>& denials)
{
    Json list = Json::array();
    for (const Denial& denial : denials) {
        // Escaped although JSON could carry it: these texts end on terminals, and part of them is a
        // stranger's file.
        list.push_back({{"class", to_string(denial.denial_class)},
                        {"reason", denial.reason},
                        {"key", escaped(denial.key)},
                        {"requirement", escaped(denial.requirement)},
                        {"fact", escaped(denial.fact)},
                        {"mend", escaped(denial.mend)},
                        {"source",
                         {{"file", escaped(denial.source.file)},
                          {"line", denial.source.line},
                          {"column", denial.source.column}}}});
    }
    return {{"denials", std::move(list)}};
}

std::string render(const std::vector<Denial>& denials)
{
    std::string out;
    // One paragraph each; labels line up for a person.
    for (const Denial& denial : denials) {
        out += "denied: " + std::string(to_string(denial.denial_class)) + " (" + denial.reason +
               ")\n";
        const auto detail = [&](std::string_view label, const std::string& text) {
            // What is empty was not known, and is left out.
            if (!text.empty()) out += "  " + std::string(label) + escaped(text) + "\n";
        };
        detail("at:       ", place(denial.source));
        detail("key:      ", denial.key);
        detail("wanted:   ", denial.requirement);
        detail("found:    ", denial.fact);
        detail("to mend:  ", denial.mend);
    }
    return out;
}

// Not escaped here: the audit log is JSON, and escapes belong where text is shown.
audit::Denied to_audit(const Request& request, const policy::EffectivePolicy& policy,
                       const std::vector<Denial>& denials)
{
    audit::Denied out{request.profile.name, policy.digest(), {}};
    for (const Denial& denial : denials) {
        out.denials.push_back({std::string(to_string(denial.denial_class)), denial.reason,
                               denial.key, denial.requirement, denial.fact, denial.mend,
                               denial.source});
    }
    return out;
}

}  // namespace sandbox::resolve
