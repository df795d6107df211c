// SPDX-License-Identifier: Apache-2.0
#include "supervisor/planning.hpp"

#include <algorithm>

#include "profile/check.hpp"
#include "profile/profile.hpp"
#include "supervisor/validated.hpp"

namespace sandbox::supervisor {

namespace {

// The one call of the resolver: file, plan file and stored plan all come here.
PlanOutcome resolve_located(const Host& host, profile::LocatedProfile located,
                            const facts::CapabilitySnapshot* elsewhere)
{
    const resolve::Request request{std::move(located.profile), std::move(located.where)};
    // Only the facts are the other host's; policy is ours, as `plan --snapshot` promises.
    auto resolution = resolve::resolve(request, host.policy,
                                       elsewhere ? *elsewhere : host.snapshot);
    if (auto* denials = std::get_if<std::vector<resolve::Denial>>(&resolution)) {
        return std::move(*denials);
    }
    return std::get<plan::ExecutionPlan>(std::move(resolution));
}

// The invocation's own words, checked by the same rules as the file's.
std::vector<Diagnostic> adjust(profile::LocatedProfile& located, const Adjustments& adjustments)
{
    if (adjustments.argv.empty() && adjustments.env.empty() && !adjustments.terminal) return {};
    const SourceLocation here{"<command line>", 0, 0};
    if (adjustments.terminal) {
        located.profile.process.terminal = *adjustments.terminal;
        located.where["process.terminal"] = here;
    }
    if (!adjustments.argv.empty()) {
        located.profile.process.argv = adjustments.argv;
        // A command of its own replaces the profile's `idle`: the two exclude each other.
        located.profile.process.idle = false;
        // Their places would point into the file at words that are no longer there.
        std::erase_if(located.where,
                      [](const auto& place) { return place.first.starts_with("process.argv["); });
        located.where["process.argv"] = here;
    }
    // For names that are no bare keys; the file's own were checked before.
    if (!adjustments.env.empty()) located.where["process.env"] = here;
    for (const auto& [name, value] : adjustments.env) {
        located.profile.process.env[name] = value;
        located.where["process.env." + name] = here;
    }
    // Checked again as a whole: a line of the command may break a rule between keys.
    return profile::check(located.profile, located.where);
}

std::string differing_keys(const plan::ExecutionPlan& carried, const plan::ExecutionPlan& now)
{
    std::string text;
    for (const plan::Change& change : plan::diff(carried, now)) {
        text += "\n  " + change.key + ": " + change.from + " in the file, " + change.to + " today";
    }
    return text;
}

}  // namespace

PlanOutcome make_plan(const Host& host, const ProfileText& profile, const Adjustments& adjustments,
                      const facts::CapabilitySnapshot* elsewhere)
{
    const Validated validated(host.paths.run, "profile", profile.text);
    auto parsed = profile::parse_profile(profile.text, profile.file, validated.schema());
    if (!parsed.profile) return ProfileErrors{std::move(parsed.diagnostics)};
    validated.remember();
    // Overlay first, then the invocation: what a person types may not be undone by a repository's
    // file.
    if (adjustments.overlay) {
        parsed = profile::apply_overlay(*parsed.profile, adjustments.overlay->text,
                                        adjustments.overlay->file);
        if (!parsed.profile) return ProfileErrors{std::move(parsed.diagnostics)};
    }
    auto wrong = adjust(*parsed.profile, adjustments);
    if (!wrong.empty()) return ProfileErrors{std::move(wrong)};
    return resolve_located(host, std::move(*parsed.profile), elsewhere);
}

Result<PlanOutcome> make_plan_again(const Host& host, std::string_view plan_file)
{
    const plan::ExecutionPlan carried = TRY_WITH(plan::decode_file(plan_file), "plan file");
    // No places: a plan file has keys, but no lines that a person wrote.
    profile::LocatedProfile located{carried->request, {}};
    auto wrong = profile::check(located.profile, located.where);
    if (!wrong.empty()) return PlanOutcome(ProfileErrors{std::move(wrong)});
    PlanOutcome outcome = resolve_located(host, std::move(located), nullptr);
    const auto* now = std::get_if<plan::ExecutionPlan>(&outcome);
    // Compared as values; the digest of equal plans is equal.
    if (now == nullptr || *now == carried) return outcome;
    return fail(Code::denied,
                "the plan file no longer holds: resolved again today, it gives another "
                "plan" +
                    differing_keys(carried, *now));
}

}  // namespace sandbox::supervisor
