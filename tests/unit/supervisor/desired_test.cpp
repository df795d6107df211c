// SPDX-License-Identifier: Apache-2.0
#include "supervisor/desired.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "../ledger/support.hpp"
#include "../resolve/world.hpp"

// What is decided from what is known: no sandbox, no file.
namespace sandbox::supervisor::desired {
namespace {

using Deed = Applied::Action;
using Asker = ApplyRequest::Asker;
using ledger::Managed;
using ledger::Origin;
using ledger::State;
using Edit = std::function<void(profile::Profile&)>;

constexpr const char* kFile = "/etc/sandbox/profiles.d/web.toml";
constexpr const char* kFolder = "/etc/sandbox/profiles.d";

plan::ExecutionPlan web(const Edit& edit = {})
{
    resolve::test::World world = resolve::test::hello();
    world.profile.name = "web";
    if (edit) edit(world.profile);
    return resolve::test::planned(world);
}

Wanted wanted(const Edit& edit = {})
{
    Wanted w{kFile, "web", web(edit), Origin::profiles_d, true};
    w.name = (*w.plan)->request.name;
    return w;
}

Present running(unsigned number = 1)
{
    Present p;
    p.row = ledger::test::sandbox(number, "web");
    p.row.state = State::running;
    p.alive = true;
    p.plan = web();
    p.managed = Managed{p.row.id, Origin::profiles_d, kFile};
    return p;
}

Present resting(State state)
{
    Present p = running();
    p.row.state = state;
    p.alive = false;
    return p;
}

Step only(const std::vector<Step>& steps)
{
    EXPECT_EQ(steps.size(), 1U);
    return steps.empty() ? Step{} : steps.front();
}

TEST(DesiredDiff, OfNothingAndNothingIsNothing) { EXPECT_TRUE(diff({}, {}, {}).empty()); }

TEST(DesiredDiff, MakesWhatIsMissing)
{
    const Step step = only(diff({wanted()}, {}, {}));
    EXPECT_EQ(step.action, Deed::create);
    EXPECT_EQ(step.name, "web");
    EXPECT_EQ(step.file, kFile);
    EXPECT_FALSE(step.present);
    EXPECT_EQ(step.plan, web());
    EXPECT_EQ(step.behind, (Managed{{}, Origin::profiles_d, kFile}));
}

TEST(DesiredDiff, LeavesAloneWhatRunsAsWanted)
{
    const Step step = only(diff({wanted()}, {running()}, {}));
    EXPECT_EQ(step.action, Deed::nothing);
    EXPECT_FALSE(step.adopt);
}

TEST(DesiredDiff, UpdatesWhatMayChangeLiveAndReplacesForTheRest)
{
    const Step live = only(diff({wanted([](auto& p) { p.resources.pids = 9; })}, {running()}, {}));
    EXPECT_EQ(live.action, Deed::update);
    ASSERT_EQ(live.changes.size(), 1U);
    EXPECT_EQ(live.changes[0].key, "resources.pids");
    EXPECT_EQ(live.plan, web([](auto& p) { p.resources.pids = 9; }));
    const Step other = only(diff({wanted([](auto& p) {
                                     p.resources.pids = 9;
                                     p.process.argv = {"/bin/other"};
                                 })},
                                 {running()}, {}));
    EXPECT_EQ(other.action, Deed::replace);
    EXPECT_EQ(other.changes.size(), 2U);
    EXPECT_NE(other.why.find("process.argv"), std::string::npos) << other.why;
}

TEST(DesiredDiff, ANewReleaseOrHostIsNoReasonToEndASandbox)
{
    Present present = running();
    plan::PlanContent content = present.plan->content();
    content.artifacts["sandbox-init"] = "sha256:" + std::string(64, 'f');
    present.plan = plan::ExecutionPlan::seal(std::move(content)).value();
    const Step step = only(diff({wanted()}, {present}, {}));
    EXPECT_EQ(step.action, Deed::nothing);
    EXPECT_EQ(step.pending.size(), 1U);
}

TEST(DesiredDiff, APersonStartsWhatHasEndedAndAPassOnlyWhatDiedOrIsOfAnotherBoot)
{
    struct Case {
        State state;
        bool of_this_boot;
        Deed person;
        Deed pass;
    };
    const std::vector<Case> cases{
        {State::stopped, true, Deed::start, Deed::nothing},
        {State::stopped, false, Deed::start, Deed::start},
        {State::failed, true, Deed::start, Deed::nothing},
        {State::failed, false, Deed::start, Deed::start},
        {State::dead, true, Deed::start, Deed::start},
        // The ledger says that it runs and its shim is gone: reconcile has not been here yet.
        {State::running, true, Deed::start, Deed::start},
        {State::prepared, true, Deed::start, Deed::start},
    };
    for (const Case& c : cases) {
        Present present = resting(c.state);
        present.of_this_boot = c.of_this_boot;
        const std::string what = std::string(to_string(c.state));
        EXPECT_EQ(only(diff({wanted()}, {present}, {{}, Asker::person})).action, c.person) << what;
        EXPECT_EQ(only(diff({wanted()}, {present}, {{}, Asker::pass})).action, c.pass) << what;
    }
}

TEST(DesiredDiff, APassTriesAFailedLaunchAgainWhereThePolicySaysSo)
{
    const Edit restarts = [](auto& p) { p.lifecycle.restart = profile::RestartPolicy::on_failure; };
    Present failed = resting(State::failed);
    failed.plan = web(restarts);
    EXPECT_EQ(only(diff({wanted(restarts)}, {failed}, {{}, Asker::pass})).action, Deed::start);
    failed.row.state = State::stopped;
    EXPECT_EQ(only(diff({wanted(restarts)}, {failed}, {{}, Asker::pass})).action, Deed::nothing);
}

TEST(DesiredDiff, WhatEndedIsReplacedWhenItsPlanIsNoLongerTheSame)
{
    for (const State state : {State::stopped, State::failed, State::dead}) {
        const Step step = only(diff({wanted([](auto& p) { p.resources.pids = 9; })},
                                    {resting(state)}, {{}, Asker::pass}));
        EXPECT_EQ(step.action, Deed::replace) << to_string(state);
    }
    Present unreadable = resting(State::stopped);
    unreadable.plan.reset();
    EXPECT_EQ(only(diff({wanted()}, {unreadable}, {})).action, Deed::replace);
}

TEST(DesiredDiff, KeepsTheLastGoodStateOfAFileThatIsWrong)
{
    Wanted wrong{kFile, "", std::nullopt, Origin::profiles_d, true};
    const Step step = only(diff({wrong}, {running()}, {{kFolder}, Asker::pass}));
    EXPECT_EQ(step.action, Deed::keep);
    EXPECT_EQ(step.name, "web");
    EXPECT_EQ(only(diff({wrong}, {}, {{kFolder}, Asker::pass})).action, Deed::refuse);
    // A denial: the name is known, and the sandbox was made from another file of that name.
    Wanted denied{"/srv/web.toml", "web", std::nullopt, Origin::apply, true};
    EXPECT_EQ(only(diff({denied}, {running()}, {})).action, Deed::keep);
}

TEST(DesiredDiff, RemovesWhatItsFileNoLongerAsksFor)
{
    const Step gone = only(diff({}, {running()}, {{kFolder}, Asker::pass}));
    EXPECT_EQ(gone.action, Deed::remove);
    EXPECT_EQ(gone.name, "web");
    EXPECT_EQ(gone.file, kFile);
    Wanted lies_there = wanted();
    lies_there.start = false;
    EXPECT_EQ(only(diff({lies_there}, {running()}, {{kFolder}, Asker::pass})).action, Deed::remove);
    // The same file with another name inside: the new one is made, the old one goes.
    const auto steps = diff({wanted([](auto& p) { p.name = "shop"; })}, {running()}, {});
    ASSERT_EQ(steps.size(), 2U);
    EXPECT_EQ(steps[0].action, Deed::create);
    EXPECT_EQ(steps[0].name, "shop");
    EXPECT_EQ(steps[1].action, Deed::remove);
    EXPECT_EQ(steps[1].name, "web");
}

TEST(DesiredDiff, RemovesNothingOfOtherFoldersAndNothingThatRunMade)
{
    EXPECT_TRUE(diff({}, {running()}, {}).empty());
    EXPECT_TRUE(diff({}, {running()}, {{"/srv"}, Asker::person}).empty());
    Present by_run = running();
    by_run.managed.reset();
    EXPECT_TRUE(diff({}, {by_run}, {{kFolder}, Asker::pass}).empty());
}

TEST(DesiredDiff, ASandboxThatAPersonAppliedFromProfilesDStaysUntilItsFileIsGone)
{
    Present applied = running();
    applied.managed->origin = Origin::apply;
    Wanted lies_there = wanted();
    lies_there.start = false;
    EXPECT_TRUE(diff({lies_there}, {applied}, {{kFolder}, Asker::pass}).empty());
    EXPECT_EQ(only(diff({}, {applied}, {{kFolder}, Asker::pass})).action, Deed::remove);
}

TEST(DesiredDiff, NeverTakesOverWhatIsSomebodyElses)
{
    Present by_run = running();
    by_run.managed.reset();
    const Step run = only(diff({wanted()}, {by_run}, {}));
    EXPECT_EQ(run.action, Deed::refuse);
    EXPECT_NE(run.why.find("rm web"), std::string::npos) << run.why;
    Wanted other = wanted();
    other.file = "/srv/web.toml";
    other.origin = Origin::apply;
    const Step kept = only(diff({other}, {running()}, {}));
    EXPECT_EQ(kept.action, Deed::refuse);
    EXPECT_NE(kept.why.find(kFile), std::string::npos) << kept.why;
}

TEST(DesiredDiff, TheOperatorsFolderAdoptsWhatAPersonApplied)
{
    Present applied = running();
    applied.managed = Managed{applied.row.id, Origin::apply, "/srv/web.toml"};
    const Step step = only(diff({wanted()}, {applied}, {{kFolder}, Asker::pass}));
    EXPECT_EQ(step.action, Deed::nothing);
    EXPECT_TRUE(step.adopt);
    EXPECT_EQ(step.behind, (Managed{applied.row.id, Origin::profiles_d, kFile}));
}

TEST(DesiredDiff, OfTwoFilesThatWantOneNameTheFirstHasIt)
{
    Wanted second = wanted();
    second.file = "/etc/sandbox/profiles.d/zweb.toml";
    const auto steps = diff({wanted(), second}, {}, {});
    ASSERT_EQ(steps.size(), 2U);
    EXPECT_EQ(steps[0].action, Deed::create);
    EXPECT_EQ(steps[1].action, Deed::refuse);
    EXPECT_NE(steps[1].why.find(kFile), std::string::npos) << steps[1].why;
}

TEST(DesiredDiff, OfWhatItAskedForHasNothingMoreToDo)
{
    const Wanted changed = wanted([](auto& p) { p.resources.pids = 9; });
    Present present = running();
    present.plan = only(diff({changed}, {present}, {})).plan;
    const Step again = only(diff({changed}, {present}, {}));
    EXPECT_EQ(again.action, Deed::nothing);
    EXPECT_TRUE(again.pending.empty());
}

}  // namespace
}  // namespace sandbox::supervisor::desired
