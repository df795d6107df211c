// SPDX-License-Identifier: Apache-2.0
#include "shim/update.hpp"

#include <fcntl.h>

#include <algorithm>

#include "base/failpoint.hpp"
#include "canon/json.hpp"
#include "plan/live.hpp"
#include "shim/update_limits.hpp"
#include "sys/file.hpp"

namespace sandbox::shim {

namespace {

constexpr std::size_t kMostUpdatedPlan = 16U << 20;  // kMostRequestBytes of a launch

// A leaf of the sandbox's own state folder: the name comes over a socket. kBeneath keeps it inside.
Result<std::string> read_plan_file(const driver::Binding& binding, const std::string& name)
{
    auto folder = TRY(sys::open_dir(binding.state_dir.str()));
    auto file = TRY(sys::open_at2(folder.get(), name, O_RDONLY | O_NOFOLLOW, 0, sys::kBeneath));
    return sys::read_all(file.get(), kMostUpdatedPlan);
}

// Nothing but live keys differ: the supervisor's word is judged again where it is acted on.
Status check_live(const plan::ExecutionPlan& runs, const plan::ExecutionPlan& next)
{
    // live_revision() gives the plan that differs only where it may; anything else shows as a
    // difference.
    const auto allowed = TRY(plan::live_revision(runs, next));
    if (allowed == next) return {};
    std::string keys;
    for (const plan::Change& change : plan::diff(allowed, next)) keys += " " + change.key;
    return fail(Code::conflict, "the plan differs in more than what may change live:" + keys);
}

std::vector<audit::ControlEvidence> witnessed(const std::vector<driver::Evidence>& evidence)
{
    std::vector<audit::ControlEvidence> list;
    for (const driver::Evidence& e : evidence) {
        list.push_back({e.name, e.mechanism, e.planned, e.observed, e.held});
    }
    return list;
}

void replace_limits(std::vector<driver::Evidence>& all, const std::vector<driver::Evidence>& fresh)
{
    // The control leaf's limits are never updated: its evidence stands.
    std::erase_if(all, [](const driver::Evidence& e) {
        return e.name.starts_with("limit.") && !e.name.starts_with("limit.control.");
    });
    all.insert(all.end(), fresh.begin(), fresh.end());
}

// The file of the plan before; the ledger names the one that counts.
void forget_file(const driver::Binding& binding, const std::string& path)
{
    const std::string name = path.substr(path.rfind('/') + 1);
    if (const auto folder = sys::open_dir(binding.state_dir.str())) {
        static_cast<void>(sys::unlink_at(folder->get(), name));
    }
}

}  // namespace

Status save_evidence(const Generation& generation)
{
    auto folder = TRY(sys::open_dir(generation.request.binding.state_dir.str()));
    canon::Json list = canon::Json::array();
    for (const driver::Evidence& e : generation.evidence) {
        list.push_back({{"name", e.name},
                        {"mechanism", e.mechanism},
                        {"planned", e.planned},
                        {"observed", e.observed},
                        {"held", e.held}});
    }
    const std::string text = TRY(canon::serialize(list)) + "\n";
    // Whole or not there: inspect may look at any moment. Not synced, as plan.json: the audit log
    // has the same.
    auto file = TRY(sys::open_at2(folder.get(), "evidence.new", O_WRONLY | O_CREAT | O_TRUNC, 0600,
                                  sys::kBeneath));
    TRY_VOID(sys::write_all(file.get(), text));
    return sys::rename_at(folder.get(), "evidence.new", folder.get(), "evidence.json");
}

Status update(Generation& generation, Journal& journal, const UpdateRequest& request)
{
    const driver::Binding& binding = generation.request.binding;
    std::string text = TRY_WITH(read_plan_file(binding, request.file), "plan of the update");
    plan::ExecutionPlan next = TRY(plan::decode_file(text));
    // Before it is judged: the supervisor asked about the plan of this digest, no other.
    if (next.digest().str() != request.digest) {
        return fail(Code::corrupt, request.file + " holds the plan " + next.digest().str());
    }
    TRY_VOID(check_live(*generation.plan, next));

    // A guest's limits are its own kernel's, set when it was made.
    if (next->microvm && next->resources != (*generation.plan)->resources)
        return fail(Code::conflict,
                    "the limits of a running guest do not change; stop and start it");

    // Past here the kernel's limits change; until the commit they can be put back.
    failpoint("update.before-write");
    LimitChange limits = TRY(LimitChange::open(*generation.plan, next, binding));
    TRY_VOID(limits.write());
    failpoint("update.written");
    // Written is not in force: the kernel may round, or ignore, what it was given.
    const auto evidence = limits.observe();
    Status good = evidence ? Status{} : fail(evidence.error());
    for (const driver::Evidence& e : evidence ? *evidence : std::vector<driver::Evidence>{}) {
        if (!e.held) good = fail(Code::conflict, e.name + " reads " + e.observed);
    }
    std::string before;
    if (good) {
        // Only what was read back as planned reaches the ledger.
        auto committed = journal.updated(
            next, binding.state_dir.str() + "/" + request.file,
            {generation.plan->digest().str(), next.digest().str(), witnessed(*evidence)});
        if (committed) before = std::move(*committed);
        if (!committed) good = fail(committed.error());
    }
    if (!good) {
        // The ledger names the old plan, so the old limits must hold, too.
        if (auto back = limits.put_back(); !back) {
            return fail(good.error().code(),
                        good.error().message() + "; " + back.error().message());
        }
        return good;
    }
    failpoint("update.committed");
    replace_limits(generation.evidence, *evidence);
    generation.plan = std::move(next);
    // What the next generation of this shim starts from.
    generation.request.plan_file = std::move(text);
    static_cast<void>(save_evidence(generation));
    // After the commit: a crash in between leaves a file too many, never one too few.
    if (before != binding.state_dir.str() + "/" + request.file) forget_file(binding, before);
    failpoint("update.done");
    return {};
}

}  // namespace sandbox::shim
