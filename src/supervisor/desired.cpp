// SPDX-License-Identifier: Apache-2.0
#include "supervisor/desired.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "plan/live.hpp"
#include "supervisor/paths.hpp"

namespace sandbox::supervisor {

bool Applied::changed() const noexcept
{
    return action != Action::nothing && action != Action::keep && action != Action::refuse;
}

bool Applied::bad() const noexcept
{
    return action == Action::keep || action == Action::refuse || !failure.empty();
}

// The words of the API and the audit log: part of the contract (docs/api.md).
std::string_view to_string(Applied::Action action) noexcept
{
    using enum Applied::Action;
    switch (action) {
    case nothing: return "nothing";
    case create: return "create";
    case start: return "start";
    case update: return "update";
    case replace: return "replace";
    case remove: return "remove";
    case keep: return "keep";
    case refuse: return "refuse";
    }
    return "";
}

}  // namespace sandbox::supervisor

namespace sandbox::supervisor::desired {

namespace {

using Deed = Applied::Action;
using Asker = ApplyRequest::Asker;
using ledger::Origin;

// Of a file that only lies there nobody needs to know whether it could run; but one without a name
// cannot even be told from another's.
bool is_wrong(const Wanted& wanted)
{
    return !wanted.plan && (wanted.start || wanted.name.empty());
}

class Differ {
public:
    Differ(const std::vector<Wanted>& wanted, const std::vector<Present>& present,
           const Scope& scope)
        : wanted_(wanted), present_(present), scope_(scope)
    {
    }

    std::vector<Step> run()
    {
        for (std::size_t i = 0; i < wanted_.size(); ++i) {
            if (auto step = judge(wanted_[i])) {
                step->wanted = i;
                step->file = wanted_[i].file;
                if (step->name.empty()) step->name = wanted_[i].name;
                steps_.push_back(std::move(*step));
            }
        }
        // After all files: a leftover is only what no file kept.
        for (const Present& one : present_) {
            if (auto step = judge_leftover(one)) steps_.push_back(std::move(*step));
        }
        return std::move(steps_);
    }

private:
    const Present* by_name(const std::string& name) const
    {
        const auto found = std::ranges::find(present_, name,
                                             [](const Present& p) { return p.row.name.str(); });
        return found == present_.end() ? nullptr : &*found;
    }

    // By the file, not by the name inside: a profile that was renamed, or no longer parses, is
    // still known by where it lies.
    const Present* by_file(const std::string& file) const
    {
        const auto found = std::ranges::find_if(
            present_, [&](const Present& p) { return p.managed && p.managed->source == file; });
        return found == present_.end() ? nullptr : &*found;
    }

    std::optional<Step> judge(const Wanted& wanted)
    {
        if (is_wrong(wanted)) return judge_bad(wanted);
        if (!wanted.start) return std::nullopt;
        Step step;
        // The first in order wins, and order is that of the files: stable from pass to pass.
        if (const auto before = names_.find(wanted.name); before != names_.end()) {
            step.action = Deed::refuse;
            step.why = before->second + " asks for a sandbox of this name too: rename one profile";
            return step;
        }
        names_.emplace(wanted.name, wanted.file);
        step.plan = wanted.plan;
        step.behind = {{}, wanted.origin, wanted.file};
        const Present* present = by_name(wanted.name);
        if (present == nullptr) {
            step.action = Deed::create;
            step.why = "there is none of this name";
            return step;
        }
        step.present = present->row.id;
        // A refusal leaves kept_ alone; that sandbox is somebody else's.
        if (!may_touch(wanted, *present, step)) return step;
        kept_.insert(present->row.id);
        step.behind.sandbox = present->row.id;
        // An applied sandbox whose file moved, or that a folder takes over: only the row changes.
        step.adopt = present->managed != step.behind;
        compare(wanted, *present, step);
        return step;
    }

    // The last good state goes on.
    std::optional<Step> judge_bad(const Wanted& wanted)
    {
        const Present* present = by_file(wanted.file);
        if (present == nullptr && !wanted.name.empty()) {
            present = by_name(wanted.name);
            // Made by run: a file that cannot even be read has no claim on it.
            if (present != nullptr && !present->managed) present = nullptr;
        }
        Step step;
        step.action = present == nullptr ? Deed::refuse : Deed::keep;
        if (present != nullptr) {
            kept_.insert(present->row.id);
            step.present = present->row.id;
            step.name = present->row.name.str();
            step.why = "the file cannot be applied: what it last said goes on";
        } else {
            step.why = "the file cannot be applied";
        }
        return step;
    }

    // A file that is wrong claims what it last said; of one that is not ours to see we know
    // nothing.
    bool still_claims(const std::string& source, const std::string& name) const
    {
        const auto file = std::ranges::find(wanted_, source, &Wanted::file);
        if (file == wanted_.end()) return !is_whole(folder_of(source));
        return is_wrong(*file) || (file->start && file->name == name);
    }

    bool is_whole(const std::string& folder) const
    {
        return std::ranges::find(scope_.folders, folder) != scope_.folders.end();
    }

    // False: it is somebody else's, and the step says so.
    bool may_touch(const Wanted& wanted, const Present& present, Step& step) const
    {
        if (!present.managed) {
            step.why = "a sandbox of this name was made by run: remove it (sandboxctl rm " +
                       wanted.name + "), or rename the profile";
        } else if (present.managed->origin == Origin::profiles_d &&
                   wanted.origin == Origin::apply && present.managed->source != wanted.file &&
                   still_claims(present.managed->source, wanted.name)) {
            step.why = present.managed->source +
                       " keeps the sandbox of this name: change that file";
        } else {
            return true;
        }
        step.action = Deed::refuse;
        return false;
    }

    void compare(const Wanted& wanted, const Present& present, Step& step) const
    {
        if (present.plan) {
            plan::Changes changes = plan::split_changes(*present.plan, *wanted.plan);
            step.changes = std::move(changes.request);
            step.pending = std::move(changes.derived);
        }
        const bool runs = present.alive && ledger::is_active(present.row.state);
        const bool same = present.plan && step.changes.empty();
        if (same && (runs || present.alive)) {
            step.why = step.pending.empty() ? "runs as wanted"
                                            : "runs as wanted; the host or this release changed, "
                                              "which holds from the next start on";
            return;
        }
        if (same) return revive(wanted, present, step);
        if (!present.plan) {
            step.action = Deed::replace;
            step.why = "what it runs cannot be read";
            return;
        }
        if (runs) {
            // The digest of a revision differs from that of the plan wanted: it carries what is
            // still in force.
            auto revision = plan::live_revision(*present.plan, *wanted.plan);
            if (revision) {
                step.action = Deed::update;
                step.plan = std::move(*revision);
                step.why = "every change can be applied while it runs";
                return;
            }
            step.why = revision.error().message();
        } else {
            step.why = "it does not run, and the profile has changed";
        }
        step.action = Deed::replace;
    }

    // It should run, the profile is the same, and it does not.
    void revive(const Wanted& wanted, const Present& present, Step& step) const
    {
        using ledger::State;
        const bool vanished = ledger::is_active(present.row.state) ||
                              present.row.state == State::dead;
        // The policy is the shim's; a first launch that failed has none to keep it.
        const bool again = present.row.state == State::failed &&
                           (*wanted.plan)->request.lifecycle.restart != profile::RestartPolicy::no;
        // A pass must not fight a restart policy that gave up, or a person who stopped it. After a
        // reboot the question is open again.
        if (scope_.asker == Asker::pass && present.of_this_boot && !vanished && !again) {
            step.why = "ended in this boot (" + std::string(to_string(present.row.state)) +
                       "): its restart policy, or a person, starts it again";
            return;
        }
        // `start` takes the stored plan. Facts that changed since need a plan of today.
        const bool same_plan = present.plan->digest() == wanted.plan->digest();
        step.action = same_plan ? Deed::start : Deed::replace;
        step.why = vanished ? "it died with its shim" : "it does not run";
    }

    std::optional<Step> judge_leftover(const Present& one) const
    {
        if (!one.managed || kept_.contains(one.row.id)) return std::nullopt;
        const std::string& source = one.managed->source;
        const auto file = std::ranges::find(wanted_, source, &Wanted::file);
        // Silence is no wish to remove: a typo in a file must not kill what runs.
        if (file != wanted_.end() && is_wrong(*file)) return std::nullopt;
        Step step;
        step.action = Deed::remove;
        step.name = one.row.name.str();
        step.file = source;
        step.present = one.row.id;
        if (file == wanted_.end()) {
            // A single file was applied: what other files stand for was not asked about.
            if (!is_whole(folder_of(source))) return std::nullopt;
            step.why = "its file is gone or masked";
        } else if (!file->start && one.managed->origin == Origin::apply) {
            return std::nullopt;  // applied by a person, who may remove it
        } else {
            step.why = file->name == step.name ? "its file no longer asks for autostart"
                                               : "its file now asks for " + file->name;
        }
        return step;
    }

    const std::vector<Wanted>& wanted_;
    const std::vector<Present>& present_;
    const Scope& scope_;
    std::vector<Step> steps_;
    std::map<std::string, std::string> names_;  // profile name -> file
    std::set<SandboxId> kept_;
};

}  // namespace

std::vector<Step> diff(const std::vector<Wanted>& wanted, const std::vector<Present>& present,
                       const Scope& scope)
{
    return Differ(wanted, present, scope).run();
}

}  // namespace sandbox::supervisor::desired
