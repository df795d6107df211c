// SPDX-License-Identifier: Apache-2.0
#include "supervisor/apply.hpp"

#include <poll.h>

#include <algorithm>
#include <map>

#include "profile/profile.hpp"
#include "supervisor/apply_step.hpp"
#include "supervisor/context.hpp"
#include "supervisor/paths.hpp"
#include "supervisor/planning.hpp"
#include "sys/deadline.hpp"
#include "sys/file.hpp"

namespace sandbox::supervisor {

namespace {

constexpr std::size_t kMostRunningPlan = 16U << 20;  // as embedded.cpp
constexpr Millis kLaunchTakes{30'000};  // some 50 ms; the boot deadline is 15 s, docs/protocol.md
constexpr int kLaunchPauseMs = 5;
constexpr std::string_view kRestartClaim = "restart";  // shim/journal.hpp: kRestartVerb

bool contains(const std::vector<std::string>& list, const std::string& item)
{
    return std::ranges::find(list, item) != list.end();
}

void take_outcome(PlanOutcome outcome, Resolved& resolved)
{
    if (auto* plan = std::get_if<plan::ExecutionPlan>(&outcome)) {
        resolved.wanted.name = (*plan)->request.name;
        resolved.wanted.plan = std::move(*plan);
    } else if (auto* errors = std::get_if<ProfileErrors>(&outcome)) {
        resolved.errors = std::move(*errors);
    } else {
        resolved.denials = std::get<std::vector<resolve::Denial>>(std::move(outcome));
    }
}

Resolved resolve_file(const Host& host, const DropIn& file, Start start)
{
    Resolved resolved;
    resolved.wanted.file = file.file;
    if (!file.text) {
        // Bad files become items of the result, not an Error: one wrong file must not stop the
        // others.
        resolved.errors.diagnostics.push_back(
            {"unreadable", {}, {file.file, 0, 0}, file.problem, {}});
        return resolved;
    }
    const auto parsed = profile::parse_profile(*file.text, file.file);
    if (!parsed.profile) {
        resolved.errors.diagnostics = parsed.diagnostics;
        return resolved;
    }
    const profile::Profile& profile = parsed.profile->profile;
    resolved.wanted.name = profile.name;
    // The origin says who may remove it: a file of profiles.d with autostart stands for itself, any
    // other was applied by a person.
    const bool of_folder = contains(profile_folders(host.paths), folder_of(file.file));
    if (of_folder && profile.lifecycle.autostart) {
        resolved.wanted.origin = ledger::Origin::profiles_d;
    }
    resolved.wanted.start = start == Start::all || profile.lifecycle.autostart;
    // Planning reads the host and costs most: a file that starts nothing is not planned.
    if (resolved.wanted.start) {
        take_outcome(make_plan(host, {file.file, *file.text}, {}, nullptr), resolved);
    }
    return resolved;
}

bool is_launching(ledger::State state)
{
    return ledger::is_active(state) && state != ledger::State::running &&
           state != ledger::State::paused;
}

// Somebody else's launch is on its way, maybe that of an apply which was cut short: what comes of
// it is what counts.
Result<ledger::Sandbox> await_launch(ledger::Ledger& ledger, ledger::Sandbox row)
{
    // Polled: the ledger is a file of many writers and tells nobody of a change. `is_alive` ends
    // the wait at once when that shim dies.
    const auto deadline = sys::Deadline::after(kLaunchTakes);
    while (is_launching(row.state) && supervisor::is_alive(*row.shim) && !deadline.passed()) {
        poll(nullptr, 0, kLaunchPauseMs);
        auto now = TRY(ledger.find(row.id));
        if (!now || !now->shim) break;
        row = std::move(*now);
    }
    return row;
}

// What the ledger holds, and whether it lives. Nothing where there is no ledger yet.
Result<std::vector<desired::Present>> read_present(const Host& host)
{
    std::vector<desired::Present> present;
    // Read-only: to look must not make a ledger, and works beside any writer.
    auto ledger = ledger::Ledger::open(HostPath(host.paths.state), ledger::OpenMode::read_only);
    if (!ledger) {
        if (ledger.error().code() == Code::not_found) return present;
        return fail(ledger.error());
    }
    std::map<SandboxId, ledger::Managed> managed;
    for (ledger::Managed& one : TRY(ledger->managed())) managed.emplace(one.sandbox, one);
    const std::string boot = TRY(sys::boot_id());
    for (ledger::Sandbox& row : TRY(ledger->list(ledger::ListScope::live))) {
        desired::Present one;
        // A row in the middle of its launch would look like one that needs starting.
        if (row.shim && is_launching(row.state)) row = TRY(await_launch(*ledger, std::move(row)));
        one.of_this_boot = (row.shim ? row.shim->boot_id : row.created.boot_id) == boot;
        one.alive = row.shim && supervisor::is_alive(*row.shim);
        if (one.alive && !ledger::is_active(row.state)) {
            // A shim that waits for its next start, or one that is just leaving.
            const auto claim = TRY(ledger->claim_of(row.id));
            one.alive = claim && claim->verb == kRestartClaim;
        }
        if (const auto found = managed.find(row.id); found != managed.end()) {
            // No plan, or one that cannot be read: `plan` stays empty, and the differ replaces what
            // runs.
            one.managed = found->second;
            const auto text = sys::read_file(row.plan_path, kMostRunningPlan);
            auto plan = text ? plan::decode_file(*text)
                             : Result<plan::ExecutionPlan>(fail(text.error()));
            if (plan) one.plan = std::move(*plan);
        }
        one.row = std::move(row);
        present.push_back(std::move(one));
    }
    return present;
}

Applied describe_step(const desired::Step& step, const std::vector<Resolved>& files)
{
    Applied item;
    item.action = step.action;
    item.name = step.name;
    item.source = step.file;
    item.changes = step.changes;
    item.pending = step.pending;
    item.why = step.why;
    if (step.plan) item.plan_digest = step.plan->digest().str();
    if (step.wanted) {
        item.errors = files[*step.wanted].errors;
        item.denials = files[*step.wanted].denials;
    }
    return item;
}

const desired::Present* present_of(const std::vector<desired::Present>& all,
                                   const desired::Step& step)
{
    if (!step.present) return nullptr;
    const auto found = std::ranges::find(all, *step.present,
                                         [](const desired::Present& p) { return p.row.id; });
    return found == all.end() ? nullptr : &*found;
}

}  // namespace

namespace {

bool is_hopeless(const desired::Step& step, const ApplyOrder& order)
{
    return step.action == Applied::Action::replace && step.plan &&
           order.failed.contains(step.plan->digest().str());
}

}  // namespace

std::set<std::string> failed_replacements(const ApplyOrder& order, const ApplyResult& result)
{
    std::set<std::string> failed;
    for (const Applied& item : result.items) {
        if (item.action == Applied::Action::replace && !item.failure.empty())
            failed.insert(item.plan_digest);
    }
    // One that was not wanted this time is forgotten.
    for (const std::string& digest : order.failed) {
        if (std::ranges::any_of(result.items, [&](const Applied& item) {
                return item.plan_digest == digest && item.bad();
            }))
            failed.insert(digest);
    }
    return failed;
}

std::vector<Resolved> resolve_files(const Host& host, const std::vector<DropIn>& files, Start start)
{
    std::vector<Resolved> resolved;
    for (const DropIn& file : files) resolved.push_back(resolve_file(host, file, start));
    return resolved;
}

std::string complaint_of(const Applied& item)
{
    if (!item.bad()) return {};
    std::string text = item.source + ": " + item.why + ": " + item.failure + "\n";
    for (const Diagnostic& d : item.errors.diagnostics) text += format(d) + "\n";
    return text + resolve::render(item.denials);
}

std::string complaints(const ApplyResult& result)
{
    std::string text;
    for (const Applied& item : result.items) text += complaint_of(item);
    return text;
}

Result<ApplyResult> carry_out(EmbeddedService& service, const ApplyOrder& order)
{
    const bool acts = order.mode == ApplyRequest::Mode::act;
    sys::UniqueFd turn;
    // Held until the end of this function: reading, deciding and acting are one turn, or two
    // applies would both find the same sandbox missing.
    if (acts) turn = TRY(take_turn(service.host().paths));
    const auto present = TRY(read_present(service.host()));
    std::vector<desired::Wanted> wanted;
    for (const Resolved& file : order.files) wanted.push_back(file.wanted);
    const auto steps = desired::diff(wanted, present, order.scope);
    ApplyResult result;
    for (const desired::Step& step : steps) {
        result.items.push_back(describe_step(step, order.files));
    }
    if (!acts) return result;

    // Past here sandboxes change: every plan that is to run has been resolved.
    StepRunner runner(service);
    for (std::size_t i = 0; i < steps.size(); ++i) {
        if (is_hopeless(steps[i], order)) {
            result.items[i].failure =
                "its replacement could not be started before: it is tried again "
                "when the file changes, or by 'sandboxctl apply'";
            continue;
        }
        runner.act(steps[i], present_of(present, steps[i]), result.items[i]);
        const std::string complaint = complaint_of(result.items[i]);
        // A daemon comes here at every change of the folder: the same complaint would fill the log.
        if (!complaint.empty() && order.told.find(complaint) != std::string::npos) continue;
        runner.record(steps[i], present_of(present, steps[i]), result.items[i]);
    }
    // Once for all steps: one flush of the queued audit lines instead of one for each.
    runner.settle();
    return result;
}

Result<ApplyResult> EmbeddedService::apply(const ApplyRequest& request)
{
    ApplyOrder order;
    order.mode = request.mode;
    order.scope = {request.folders, request.asker};
    // A plan file has no profile behind it, but goes through the same differ.
    if (request.plan) {
        Resolved resolved;
        resolved.wanted.file = request.plan->file;
        take_outcome(TRY(plan_again(request.plan->text)), resolved);
        order.files.push_back(std::move(resolved));
        return carry_out(*this, order);
    }
    std::vector<DropIn> files;
    for (const ProfileText& file : request.files) files.push_back({file.file, file.text, {}});
    // Of the folder of profiles.d as a whole only autostart says what should run.
    const auto folders = profile_folders(host_.paths);
    const bool whole = std::ranges::any_of(
        request.folders, [&](const std::string& folder) { return contains(folders, folder); });
    order.files = resolve_files(host_, files, whole ? Start::only_autostart : Start::all);
    return carry_out(*this, order);
}

}  // namespace sandbox::supervisor
