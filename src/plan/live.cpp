// SPDX-License-Identifier: Apache-2.0
#include "plan/live.hpp"

#include <algorithm>
#include <iterator>

namespace sandbox::plan {

namespace {

using profile::ChangeClass;

// The control that says which controllers the sandbox's own cgroup has joined.
constexpr std::string_view kOwnLeaf = "cgroup.own";

// PID 1's own leaf is none of the profile's business and stays as it was set.
bool is_live_control(const Control& control)
{
    const std::string_view name = control.name;
    return (name.starts_with("limit.") && !name.starts_with("limit.control.")) ||
           name.starts_with("lifecycle.");
}

// What limits were planned from; everything else was true at the start and is kept.
bool is_limit_fact(std::string_view name)
{
    return name.starts_with("cgroup.") || name == "host.cpuset";
}

std::string joined(const std::vector<std::string>& items)
{
    std::string out;
    for (const std::string& item : items) out += (out.empty() ? "" : ",") + item;
    return out;
}

// `runs` stays as it is in memory when this fails: the caller's copy is dropped.
Status merge_resources(ResourcePlan& runs, const ResourcePlan& wanted)
{
    if (runs.version != wanted.version) {
        return fail(Code::conflict,
                    "limits are held by another cgroup hierarchy than at the start");
    }
    std::vector<std::string> missing;
    // set_difference() wants sorted lists; both are (plan.hpp).
    std::ranges::set_difference(wanted.controllers, runs.controllers, std::back_inserter(missing));
    // v1: a hierarchy is joined process by process, so a fork in between could stay outside.
    if (runs.version == CgroupVersion::v1 && !missing.empty()) {
        return fail(Code::conflict, "cgroup v1: " + joined(missing) +
                                        " was not joined at the start, and joining it under "
                                        "running processes could miss one");
    }
    // v1: it stays in every hierarchy that it joined. v2: a controller that is passed on and not
    // needed limits nothing.
    if (runs.version == CgroupVersion::v2) runs.controllers = wanted.controllers;
    runs.workload = wanted.workload;
    return {};
}

}  // namespace

Changes split_changes(const ExecutionPlan& runs, const ExecutionPlan& wanted)
{
    Changes changes;
    for (Change& change : diff(runs, wanted)) {
        // By prefix, as diff() writes them; no key of a profile begins with "plan.".
        const bool derived = change.key.starts_with("plan.");
        (derived ? changes.derived : changes.request).push_back(std::move(change));
    }
    // Every one of the request's keys must be live; derived ones are told, and wait.
    return changes;
}

bool all_live(const Changes& changes) noexcept
{
    return std::ranges::all_of(changes.request, [](const Change& change) {
        return change.change_class == ChangeClass::live;
    });
}

Result<ExecutionPlan> live_revision(const ExecutionPlan& runs, const ExecutionPlan& wanted)
{
    // Its own check and not all_live(): the error names the key.
    for (const Change& change : split_changes(runs, wanted).request) {
        if (change.change_class == ChangeClass::live) continue;
        return fail(Code::conflict, change.key + " cannot change while the sandbox runs (" +
                                        std::string(profile::to_string(change.change_class)) + ")");
    }
    // A machine keeps its size, and what holds inside it, from start to end.
    const bool machine = runs->driver == profile::Driver::microvm;
    if (machine && runs->request.resources != wanted->request.resources) {
        return fail(Code::conflict, "the limits of a microVM are set at its start");
    }
    // From what runs: everything not named below was true at the start and stays.
    PlanContent content = runs.content();
    content.request = wanted->request;
    if (!machine) TRY_VOID(merge_resources(content.resources, wanted->resources));
    std::erase_if(content.controls, is_live_control);
    std::ranges::copy_if(wanted->controls, std::back_inserter(content.controls), is_live_control);
    // It shows what is joined, which has just changed.
    for (Control& control : content.controls) {
        if (!machine && control.name == kOwnLeaf)
            control.planned = joined(content.resources.controllers);
    }
    // As seal() expects: two plans that mean the same have the same bytes.
    std::ranges::sort(content.controls);
    // It was permitted under today's policy, or there would be no such plan.
    content.policy_digest = wanted->policy_digest;
    // For people: they speak of the profile as it will be.
    content.warnings = wanted->warnings;
    std::erase_if(content.facts, [](const auto& fact) { return is_limit_fact(fact.first); });
    std::ranges::copy_if(wanted->facts, std::inserter(content.facts, content.facts.end()),
                         [](const auto& fact) { return is_limit_fact(fact.first); });
    return ExecutionPlan::seal(std::move(content));
}

}  // namespace sandbox::plan
