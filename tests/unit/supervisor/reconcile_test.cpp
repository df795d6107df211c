// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <random>

#include "../ledger/support.hpp"
#include "supervisor/reconcile.hpp"

// The pure half: what is decided from what is known.
namespace sandbox::supervisor {
namespace {

using ledger::Desired;
using ledger::Entry;
using ledger::EntryKind;
using ledger::EntryState;
using ledger::ExitReason;
using ledger::RemoveOnExit;
using ledger::Sandbox;
using ledger::State;
using ledger::test::id;
using Kind = Action::Kind;

const sys::ProcessIdentity kShim{10, 20, "boot", 30};

Sandbox make(unsigned number, State state)
{
    Sandbox s = ledger::test::sandbox(number, "n" + std::to_string(number));
    s.state = state;
    s.generation = 1;
    return s;
}

Entry entry(unsigned sandbox, std::uint64_t seq, EntryKind kind)
{
    return {id(sandbox),          seq, 1, kind, driver::resource_name(kind, id(sandbox), "/p"),
            EntryState::observed, {}};
}

const std::vector kRunKinds{EntryKind::id_range,    EntryKind::state_dir,    EntryKind::run_dir,
                            EntryKind::cgroup_root, EntryKind::shim_process, EntryKind::log_files};

struct World {
    LedgerView view{{}, {}, {}, true};
    Observed observed;

    Sandbox& add(unsigned number, State state)
    {
        view.sandboxes.push_back(make(number, state));
        return view.sandboxes.back();
    }
    void own(unsigned number, const std::vector<EntryKind>& kinds)
    {
        for (const auto kind : kinds)
            view.open.push_back(entry(number, view.open.size() + 1, kind));
    }
    void shim(Life life)
    {
        view.sandboxes.back().shim = kShim;
        observed.shims[view.sandboxes.back().id] = life;
    }
    void claim(const std::string& verb, Life life, std::uint64_t deadline = 100)
    {
        const auto& sandbox = view.sandboxes.back();
        view.claims.push_back({"op-" + sandbox.id.str(),
                               sandbox.id,
                               verb,
                               "d",
                               {7, 8, "boot", 9},
                               "step",
                               deadline,
                               ledger::OperationState::active,
                               {}});
        observed.holders["op-" + sandbox.id.str()] = life;
    }
    std::vector<Action> diff() const { return supervisor::diff(view, observed); }
    Action only() const
    {
        const auto actions = diff();
        EXPECT_EQ(actions.size(), 1U);
        return actions.empty() ? Action{} : actions.front();
    }
};

std::vector<EntryKind> kinds_of(const Action& action)
{
    std::vector<EntryKind> kinds;
    for (const auto& e : action.entries) kinds.push_back(e.kind);
    return kinds;
}

TEST(ReconcileDiff, SaysNothingOfSandboxesThatAreAsTheyShouldBe)
{
    World world;
    world.add(1, State::running);
    world.own(1, kRunKinds);
    world.shim(Life::alive);
    world.add(2, State::stopped);
    world.own(2, {EntryKind::state_dir, EntryKind::log_files});
    world.shim(Life::dead);
    world.add(3, State::created);
    world.own(3, {EntryKind::id_range, EntryKind::state_dir});
    world.add(4, State::deleted);
    world.own(4, {EntryKind::log_files});
    EXPECT_TRUE(world.diff().empty());
}

TEST(ReconcileDiff, UnwindsASandboxWhoseShimDiedAndCallsItDead)
{
    World world;
    world.add(1, State::running);
    world.own(1, kRunKinds);
    world.shim(Life::dead);
    const auto action = world.only();
    EXPECT_EQ(action.kind, Kind::unwind);
    EXPECT_EQ(action.final_state, State::dead);
    EXPECT_TRUE(action.record_unknown_exit);
    EXPECT_EQ(kinds_of(action), (std::vector{EntryKind::id_range, EntryKind::run_dir,
                                             EntryKind::cgroup_root, EntryKind::shim_process}))
        << "its state and its logs stay until it is removed";
}

TEST(ReconcileDiff, KeepsAnExitThatTheShimRecordedBeforeItDied)
{
    World world;
    world.add(1, State::running).exit = ledger::Exit{7, 0, ExitReason::exited, 0};
    world.own(1, kRunKinds);
    world.shim(Life::dead);
    const auto action = world.only();
    EXPECT_EQ(action.final_state, State::stopped);
    EXPECT_FALSE(action.record_unknown_exit);
}

TEST(ReconcileDiff, FinishesTheCleaningOfAStoppedSandboxWithoutChangingItsState)
{
    World world;
    world.add(1, State::stopped).exit = ledger::Exit{};
    world.own(1, {EntryKind::state_dir, EntryKind::cgroup_root});
    world.shim(Life::dead);
    const auto action = world.only();
    EXPECT_EQ(action.kind, Kind::unwind);
    EXPECT_EQ(action.final_state, State::stopped);
    EXPECT_FALSE(action.record_unknown_exit);
}

TEST(ReconcileDiff, RemovesAllButTheLogsOfOneThatIsToGoWithItsWorkload)
{
    World world;
    world.add(1, State::running).remove_on_exit = RemoveOnExit::yes;
    world.own(1, kRunKinds);
    world.shim(Life::dead);
    const auto action = world.only();
    EXPECT_EQ(action.final_state, State::deleted);
    EXPECT_EQ(action.entries.size(), kRunKinds.size() - 1);
    EXPECT_TRUE(
        std::ranges::none_of(kinds_of(action), [](auto k) { return k == EntryKind::log_files; }));
}

TEST(ReconcileDiff, FinishesARemovalThatWasBegun)
{
    World world;
    world.add(1, State::stopped).desired = Desired::deleted;
    world.add(2, State::dead).remove_on_exit = RemoveOnExit::yes;
    world.add(3, State::deleted);
    world.own(3, {EntryKind::run_dir});
    const auto actions = world.diff();
    ASSERT_EQ(actions.size(), 3U);
    for (const auto& action : actions) {
        EXPECT_EQ(action.kind, Kind::unwind);
        EXPECT_EQ(action.final_state, State::deleted);
    }
}

TEST(ReconcileDiff, LeavesASandboxThatSomebodyAliveActsOn)
{
    World world;
    world.add(1, State::prepared);
    world.own(1, kRunKinds);
    world.claim("run", Life::alive);
    EXPECT_EQ(world.only().kind, Kind::leave);
}

TEST(ReconcileDiff, UnwindsALaunchWhoseLauncherDied)
{
    for (const State state : {State::requested, State::resolved, State::prepared, State::created}) {
        World world;
        world.add(1, state);
        world.own(1, {EntryKind::id_range, EntryKind::run_dir});
        world.claim("run", Life::dead);
        const auto action = world.only();
        EXPECT_EQ(action.kind, Kind::unwind);
        EXPECT_EQ(action.final_state, State::dead);
        EXPECT_EQ(action.entries.size(), 2U);
    }
}

TEST(ReconcileDiff, ALateHolderIsAsGoodAsADeadOne)
{
    World world;
    world.add(1, State::prepared);
    world.own(1, {EntryKind::run_dir});
    world.claim("run", Life::alive, 100);
    world.observed.boottime_ns = 100;
    EXPECT_EQ(world.only().kind, Kind::leave);
    world.observed.boottime_ns = 101;
    EXPECT_EQ(world.only().kind, Kind::unwind);
}

TEST(ReconcileDiff, OnlyReleasesTheClaimOfASandboxThatLives)
{
    World world;
    world.add(1, State::running);
    world.own(1, kRunKinds);
    world.shim(Life::alive);
    world.claim("stop", Life::dead);
    EXPECT_EQ(world.only().kind, Kind::release_claim);
    World resting;
    resting.add(1, State::stopped);
    resting.claim("start", Life::dead);
    EXPECT_EQ(resting.only().kind, Kind::release_claim);
}

TEST(ReconcileDiff, UnwindsThingsOfARunThatNoShimStandsBehind)
{
    World world;
    world.add(1, State::created);
    world.own(1, {EntryKind::state_dir, EntryKind::door_socket});
    EXPECT_EQ(world.only().kind, Kind::unwind);
}

Orphan orphan(OrphanKind kind)
{
    Orphan o{kind, id(99), "x"};
    o.owned_by_us = true;
    o.has_our_folder = true;
    return o;
}

TEST(ReconcileOrphans, AreRemovedOnlyWhenProvablyOurs)
{
    const auto judge = [](Orphan o, bool history = true) {
        World world;
        world.view.has_history = history;
        world.observed.orphans = {std::move(o)};
        return world.only().kind;
    };
    for (const auto kind : {OrphanKind::cgroup, OrphanKind::run_dir, OrphanKind::state_dir}) {
        EXPECT_EQ(judge(orphan(kind)), Kind::remove_orphan);
        EXPECT_EQ(judge(orphan(kind), false), Kind::report_foreign);
        Orphan foreign = orphan(kind);
        foreign.owned_by_us = false;
        EXPECT_EQ(judge(foreign), Kind::report_foreign);
        Orphan live = orphan(kind);
        live.live_process = true;
        EXPECT_EQ(judge(live), Kind::report_foreign);
    }
    Orphan populated = orphan(OrphanKind::cgroup);
    populated.populated = true;
    EXPECT_EQ(judge(populated), Kind::report_foreign);
    Orphan lone = orphan(OrphanKind::cgroup);
    lone.has_our_folder = false;
    EXPECT_EQ(judge(lone), Kind::report_foreign) << "another root may share the cgroup parent";
}

TEST(ReconcileOrphans, AreNotWhatTheLedgerKnows)
{
    World world;
    world.add(99, State::deleted);
    world.observed.orphans = {orphan(OrphanKind::state_dir)};
    EXPECT_TRUE(world.diff().empty());
}

World random_world(std::mt19937& random)
{
    const auto pick = [&](unsigned n) { return static_cast<unsigned>(random() % n); };
    World world;
    for (unsigned number = 1; number <= 3; ++number) {
        auto& sandbox = world.add(number, static_cast<State>(pick(10)));
        sandbox.desired = static_cast<Desired>(pick(3));
        sandbox.remove_on_exit = static_cast<RemoveOnExit>(pick(2));
        if (pick(3) == 0) sandbox.exit = ledger::Exit{};
        for (unsigned n = pick(4); n > 0; --n)
            world.own(number, {static_cast<EntryKind>(pick(15))});
        if (pick(3) != 0) world.shim(static_cast<Life>(pick(2)));
        if (pick(2) != 0) world.claim("run", static_cast<Life>(pick(2)));
    }
    return world;
}

// What apply() leaves behind when everything could be removed.
void carry_out(World& world, const Action& action)
{
    std::erase_if(world.view.claims, [&](const auto& c) { return c.sandbox == action.id; });
    if (action.kind != Kind::unwind) return;
    std::erase_if(world.view.open, [&](const Entry& e) {
        return std::ranges::find(action.entries, e) != action.entries.end();
    });
    for (auto& sandbox : world.view.sandboxes) {
        if (sandbox.id != action.id) continue;
        if (action.record_unknown_exit) {
            EXPECT_FALSE(sandbox.exit.has_value());
            sandbox.exit = ledger::Exit{};
        }
        if (sandbox.state != action.final_state) {
            EXPECT_TRUE(ledger::may_become(sandbox.state, action.final_state))
                << to_string(sandbox.state) << " to " << to_string(action.final_state);
        }
        sandbox.state = action.final_state;
    }
}

TEST(ReconcileDiff, OnRandomWorldsSparesTheLivingAndIsDoneAfterOnePass)
{
    std::mt19937 random(42);
    std::size_t unwound = 0;
    for (int i = 0; i < 20000; ++i) {
        World world = random_world(random);
        for (const auto& action : world.diff()) {
            if (action.kind == Kind::leave) continue;
            if (action.kind == Kind::unwind) {
                ++unwound;
                const auto shim = world.observed.shims.find(action.id);
                EXPECT_FALSE(shim != world.observed.shims.end() && shim->second == Life::alive);
                for (const auto& e : action.entries) EXPECT_EQ(e.sandbox, action.id);
            }
            carry_out(world, action);
        }
        for (const auto& action : world.diff()) {
            ASSERT_EQ(action.kind, Kind::leave) << "case " << i << ": " << action.why;
        }
    }
    EXPECT_GT(unwound, 5000U);
}

}  // namespace
}  // namespace sandbox::supervisor
