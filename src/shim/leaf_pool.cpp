// SPDX-License-Identifier: Apache-2.0
#include "shim/leaf_pool.hpp"

#include <algorithm>

#include "base/failpoint.hpp"
#include "driver/resources.hpp"
#include "wire/protocol.hpp"

namespace sandbox::shim {

namespace {

// A sandbox with few sessions costs one commit; many cost ever fewer for each.
constexpr std::uint32_t kFirstNames = 8;  // then twice as many each time
// As many as PID 1 takes, 256 (docs/protocol.md), and 64 leaves of ended ones that are still being
// cleared.
constexpr std::uint32_t kMostNames = wire::kMaxSessions + 64U;
constexpr Millis kMoment{20};

}  // namespace

Status LeafPool::add_names()
{
    const auto known = static_cast<std::uint32_t>(taken_.size());
    // Doubled: each commit announces as many names again, so their number grows with the logarithm.
    const std::uint32_t more = std::min(std::max(kFirstNames, known), kMostNames - known);
    std::vector<ledger::Intent> intents;
    for (std::uint32_t slot = known; slot < known + more; ++slot) {
        intents.push_back({ledger::EntryKind::cgroup_session,
                           driver::resource_name(ledger::EntryKind::cgroup_session, binding_.id,
                                                 cgroup_parent_, name_of(slot))});
    }
    failpoint("session.before-commit");
    TRY(journal_.intend(intents));
    failpoint("session.after-commit");
    taken_.resize(known + more, false);
    return {};
}

Result<std::uint32_t> LeafPool::free_slot()
{
    // The lowest free one, so that few names are ever used.
    auto free = std::find(taken_.begin(), taken_.end(), false);
    if (free == taken_.end()) {
        if (taken_.size() >= kMostNames) {
            return fail(Code::resource_exhausted,
                        "as many sessions as there may be are open in this sandbox (" +
                            std::to_string(wire::kMaxSessions) + ")");
        }
        const auto at = static_cast<std::ptrdiff_t>(taken_.size());
        TRY_VOID(add_names());
        free = taken_.begin() + at;
    }
    return static_cast<std::uint32_t>(free - taken_.begin());
}

Result<LeafPool::Leaf> LeafPool::make()
{
    const std::uint32_t slot = TRY(free_slot());
    // Opened once for all sessions: the paths below do not change while the sandbox runs.
    if (!groups_) groups_.emplace(TRY(driver::open_groups(plan_, binding_)));
    const std::string name = name_of(slot);
    auto leaf = TRY(driver::create_session_leaf(plan_, binding_, name, *groups_));
    failpoint("effect.session-leaf");
    // Only after it exists: a failed attempt leaves the name free and the leaf to be made again.
    taken_[slot] = true;
    return Leaf{slot, name, std::move(leaf.joins)};
}

std::string LeafPool::path_of(std::uint32_t slot) const
{
    return binding_.cgroup + "/workload/" + name_of(slot);
}

bool LeafPool::clear(std::uint32_t slot)
{
    // Any doubt is "not yet": the caller asks again, and a slot is given away only when it is
    // empty.
    const auto host = driver::host_cgroups();
    if (!host) return false;
    const auto leaf = sys::cgroup::CgroupTree::find(*host, path_of(slot));
    if (!leaf) return false;
    if (!leaf->empty()) {
        const auto left = leaf->processes();
        if (!left) return false;
        // cgroup.kill or, in v1, freeze and SIGKILL; 20 ms, because the loop is waiting.
        if (!left->empty() && !leaf->kill_all(sys::Deadline::after(kMoment))) return false;
        // Only an empty leaf can be removed: the proof that nothing is left.
        if (!leaf->remove(sys::Deadline::after(kMoment))) return false;
    }
    failpoint("undo.session-leaf");
    taken_[slot] = false;
    return true;
}

std::uint64_t LeafPool::oom_kills(std::uint32_t slot) const
{
    const auto host = driver::host_cgroups();
    if (!host) return 0;
    const auto leaf = sys::cgroup::CgroupTree::find(*host, path_of(slot));
    if (!leaf || leaf->empty()) return 0;
    return leaf->oom_kills().value_or(0);
}

}  // namespace sandbox::shim
