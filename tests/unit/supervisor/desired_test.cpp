// SPDX-License-Identifier: Apache-2.0
#include "supervisor/desired.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <tuple>

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
    Wanted lies_there{kFile, "web", std::nullopt, Origin::apply, false};
    EXPECT_EQ(only(diff({lies_there}, {running()}, {{kFolder}, Asker::pass})).action, Deed::remove);
    EXPECT_TRUE(diff({lies_there}, {}, {{kFolder}, Asker::pass}).empty());
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

// A little world: files that say something, sandboxes that are in some state.
class World {
public:
    explicit World(std::uint32_t seed) : random_(seed)
    {
        for (unsigned i = 0; i < 6; ++i) {
            const std::string name = kNames.at(random_() % kNames.size());
            if (chance(2)) wanted_.push_back(file(i, name));
            if (chance(2)) add(i + 1, kNames.at(random_() % kNames.size()));
        }
    }

    std::vector<Step> look(Asker asker) { return diff(wanted_, present_, {{"/d"}, asker}); }

    // As the hands would, if all went well.
    void do_all(const std::vector<Step>& steps)
    {
        for (const Step& step : steps) {
            const auto at = std::ranges::find_if(
                present_, [&](const Present& p) { return step.present == p.row.id; });
            switch (step.action) {
            case Deed::remove: present_.erase(at); break;
            case Deed::create:
                present_.push_back(made(100 + static_cast<unsigned>(present_.size()), step));
                break;
            case Deed::replace:
                *at = made(200 + static_cast<unsigned>(present_.size()), step);
                break;
            case Deed::start:
            case Deed::update:
                at->plan = step.plan;
                at->row.state = State::running;
                at->alive = true;
                break;
            default: break;
            }
            if (step.adopt && step.action != Deed::replace) at->managed = step.behind;
        }
    }

    bool holds() const
    {
        std::set<std::string> names;
        for (const Present& p : present_) {
            if (!names.insert(p.row.name.str()).second) return false;
        }
        return true;
    }

private:
    bool chance(unsigned one_in) { return random_() % one_in == 0; }

    Wanted file(unsigned number, const std::string& name)
    {
        Wanted w{"/d/" + std::to_string(number) + ".toml", name, std::nullopt, Origin::apply, true};
        if (chance(3)) w.origin = Origin::profiles_d;
        w.start = !chance(4);
        if (!chance(5)) w.plan = some_plan(name);
        if (!w.plan && chance(2)) w.name.clear();
        return w;
    }

    plan::ExecutionPlan some_plan(const std::string& name)
    {
        const bool pids = chance(2);
        const bool argv = chance(3);
        static std::map<std::tuple<std::string, bool, bool>, plan::ExecutionPlan> known;
        const auto key = std::make_tuple(name, pids, argv);
        if (const auto found = known.find(key); found != known.end()) return found->second;
        auto plan = web([&](profile::Profile& p) {
            p.name = name;
            if (pids) p.resources.pids = 9;
            if (argv) p.process.argv = {"/bin/other"};
        });
        return known.emplace(key, std::move(plan)).first->second;
    }

    void add(unsigned number, const std::string& name)
    {
        Present p = running(number);
        p.row.name = SandboxName(name);
        if (!holds_name(name)) return;
        constexpr std::array kStates{State::running, State::paused, State::stopped,
                                     State::failed,  State::dead,   State::prepared};
        p.row.state = kStates.at(random_() % kStates.size());
        p.alive = ledger::is_active(p.row.state) && !chance(4);
        p.of_this_boot = !chance(3);
        p.plan = some_plan(name);
        if (chance(8)) p.plan.reset();
        p.managed = Managed{p.row.id, chance(2) ? Origin::apply : Origin::profiles_d,
                            "/d/" + std::to_string(random_() % 8) + ".toml"};
        if (chance(5)) p.managed.reset();
        present_.push_back(std::move(p));
    }

    bool holds_name(const std::string& name) const
    {
        return std::ranges::none_of(present_,
                                    [&](const Present& p) { return p.row.name.str() == name; });
    }

    Present made(unsigned number, const Step& step)
    {
        Present p = running(number + static_cast<unsigned>(random_() % 1000) * 1000);
        p.row.name = SandboxName(step.name);
        p.plan = step.plan;
        p.managed = step.behind;
        p.managed->sandbox = p.row.id;
        return p;
    }

    static constexpr std::array<const char*, 4> kNames{"web", "shop", "mail", "db"};
    std::mt19937 random_;
    std::vector<Wanted> wanted_;
    std::vector<Present> present_;
};

TEST(DesiredDiff, OfWhateverWasThereHasNothingToDoOnceItWasDone)
{
    for (std::uint32_t seed = 0; seed < 300; ++seed) {
        for (const Asker asker : {Asker::person, Asker::pass}) {
            World world(seed);
            world.do_all(world.look(asker));
            EXPECT_TRUE(world.holds()) << "seed " << seed;
            for (const Step& step : world.look(asker)) {
                const bool rests = step.action == Deed::nothing || step.action == Deed::keep ||
                                   step.action == Deed::refuse;
                EXPECT_TRUE(rests && !step.adopt)
                    << "seed " << seed << ": " << to_string(step.action) << " " << step.name << " "
                    << step.file << ": " << step.why;
            }
        }
    }
}

}  // namespace
}  // namespace sandbox::supervisor::desired
