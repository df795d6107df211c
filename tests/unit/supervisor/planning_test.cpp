// SPDX-License-Identifier: Apache-2.0
#include "supervisor/planning.hpp"

#include <gtest/gtest.h>

#include <set>

#include "../resolve/world.hpp"
#include "canon/canon.hpp"
#include "canon/json.hpp"

namespace sandbox::supervisor {
namespace {

constexpr const char* kHello = R"(version = 1
name = "hello"
isolation = "sandbox"
[process]
argv = ["/bin/true"]
env = { A = "1" }
)";

Host host(const std::string& cgroups = "v1")
{
    Host host;
    host.policy = policy::EffectivePolicy::meet({}, {});
    host.snapshot = facts::CapabilitySnapshot(resolve::test::host(cgroups));
    return host;
}

ProfileText text(std::string toml) { return {"hello.toml", std::move(toml)}; }

plan::ExecutionPlan planned(const Adjustments& adjustments, const std::string& toml = kHello)
{
    auto outcome = make_plan(host(), text(toml), adjustments, nullptr);
    if (const auto* wrong = std::get_if<ProfileErrors>(&outcome)) {
        for (const auto& d : wrong->diagnostics) ADD_FAILURE() << format(d);
    }
    if (const auto* denials = std::get_if<std::vector<resolve::Denial>>(&outcome)) {
        ADD_FAILURE() << resolve::render(*denials);
    }
    return std::get<plan::ExecutionPlan>(std::move(outcome));
}

std::vector<Diagnostic> refused(const Adjustments& adjustments, const std::string& toml = kHello)
{
    auto outcome = make_plan(host(), text(toml), adjustments, nullptr);
    const auto* wrong = std::get_if<ProfileErrors>(&outcome);
    return wrong == nullptr ? std::vector<Diagnostic>() : wrong->diagnostics;
}

TEST(MakePlan, PlansTheProfileAsItIsWithoutAdjustments)
{
    const auto plan = planned({});
    EXPECT_EQ(plan->process.argv, (std::vector<std::string>{"/bin/true"}));
    EXPECT_EQ(plan->process.env.at("A"), "1");
}

TEST(MakePlan, LaysTheInvocationsWordsOverTheProfile)
{
    const auto plan = planned(
        {.argv = {"/bin/sh", "-c", "exit 7"}, .env = {{"A", "2"}, {"B", ""}}, .overlay = {}});
    EXPECT_EQ(plan->process.argv, (std::vector<std::string>{"/bin/sh", "-c", "exit 7"}));
    EXPECT_EQ(plan->process.env.at("A"), "2");
    EXPECT_EQ(plan->process.env.at("B"), "");
    // What was asked for is part of the plan: a plan file says what will run.
    EXPECT_EQ(plan->request.process.argv, plan->process.argv);
}

TEST(MakePlan, GivesAnIdleProfileACommand)
{
    const std::string idle =
        "version = 1\nname = \"w\"\nisolation = \"sandbox\"\n[process]\nidle = true\n";
    EXPECT_TRUE(planned({}, idle)->process.idle);
    const auto plan = planned({.argv = {"/bin/true"}, .env = {}, .overlay = {}}, idle);
    EXPECT_FALSE(plan->process.idle);
    EXPECT_EQ(plan->process.argv, (std::vector<std::string>{"/bin/true"}));
}

TEST(MakePlan, ChecksTheInvocationsWordsByTheRulesOfTheFile)
{
    for (const auto& argv : {std::vector<std::string>{""},
                             std::vector<std::string>{"/bin/x", std::string("a\0b", 3)}}) {
        const auto wrong = refused({.argv = argv, .env = {}, .overlay = {}});
        ASSERT_FALSE(wrong.empty());
        EXPECT_EQ(wrong[0].at.file, "<command line>") << format(wrong[0]);
    }
    for (const char* name : {"", "A=B", "A B", "\xff"}) {
        const auto wrong = refused({.argv = {}, .env = {{name, "x"}}, .overlay = {}});
        ASSERT_FALSE(wrong.empty()) << name;
        EXPECT_EQ(wrong[0].at.file, "<command line>") << format(wrong[0]);
    }
    EXPECT_FALSE(
        refused({.argv = {}, .env = {{"A", std::string("x\0y", 3)}}, .overlay = {}}).empty());
}

TEST(MakePlan, LaysTheOverlayBelowTheInvocationsWords)
{
    const ProfileText overlay{"o.toml", "version = 1\n[resources]\npids = 8\n"};
    const auto plan = planned({.argv = {"/bin/sh"}, .env = {}, .overlay = overlay});
    EXPECT_EQ(plan->request.resources.pids, 8U);
    EXPECT_EQ(plan->process.argv, (std::vector<std::string>{"/bin/sh"}));
    const auto wrong = refused(
        {.argv = {},
         .env = {},
         .overlay = ProfileText{"o.toml", "version = 1\n[resources]\npidz = 8\n"}});
    ASSERT_FALSE(wrong.empty());
    EXPECT_EQ(wrong[0].at.file, "o.toml");
}

TEST(MakePlan, ReportsAProfileThatDoesNotParse)
{
    const auto wrong = refused({}, "isolaton = \"sandbox\"\n");
    ASSERT_FALSE(wrong.empty());
    EXPECT_EQ(wrong[0].at.file, "hello.toml");
}

TEST(MakePlan, ResolvesForTheHostOfASavedSnapshot)
{
    auto poor = resolve::test::host("v1");
    poor["seccomp.filter"] = {facts::FactStatus::gap, "", "taken away"};
    const facts::CapabilitySnapshot elsewhere(poor);
    const auto outcome = make_plan(host(), text(kHello), {}, &elsewhere);
    EXPECT_TRUE(std::holds_alternative<std::vector<resolve::Denial>>(outcome));
}

TEST(MakePlanAgain, GivesTheSamePlanOnTheSameHost)
{
    const auto plan = planned({.argv = {"/bin/sh"}, .env = {}, .overlay = {}});
    const auto again = make_plan_again(host(), plan::encode_file(plan).value());
    ASSERT_TRUE(again) << again.error().message();
    EXPECT_EQ(std::get<plan::ExecutionPlan>(*again).digest(), plan.digest());
}

TEST(MakePlanAgain, NamesTheKeysThatDifferWhenTheHostHasChanged)
{
    const std::string file = plan::encode_file(planned({})).value();
    auto changed = resolve::test::host("v1");
    changed["init.digest"].value = resolve::test::digest_of('9');
    Host today = host();
    today.snapshot = facts::CapabilitySnapshot(changed);
    const auto again = make_plan_again(today, file);
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().code(), Code::denied);
    const std::string message = again.error().message();
    EXPECT_NE(message.find("sandbox-init"), std::string::npos) << message;
    EXPECT_NE(message.find(resolve::test::digest_of('9')), std::string::npos) << message;
}

TEST(MakePlanAgain, DeniesUnderAPolicyThatWasTightened)
{
    const std::string file = plan::encode_file(planned({})).value();
    auto world = resolve::test::hello();
    world.bundle("drivers").drivers = std::set<std::string>{"microvm"};
    Host today = host();
    today.policy = policy::EffectivePolicy::meet(world.bundles, {});
    const auto again = make_plan_again(today, file);
    ASSERT_TRUE(again) << again.error().message();
    EXPECT_TRUE(std::holds_alternative<std::vector<resolve::Denial>>(*again));
}

TEST(MakePlanAgain, RefusesAFileThatWasEditedEvenWithANewDigest)
{
    const std::string file = plan::encode_file(planned({})).value();
    std::string edited = file;
    edited.replace(edited.find("/bin/true"), 9, "/bin/evil");
    EXPECT_FALSE(make_plan_again(host(), edited)) << "the digest does not match";

    // Derived values changed, and the digest made to fit.
    canon::Json content = canon::parse(file).value()["plan"];
    content["process"]["argv"] = {"/bin/evil"};
    const std::string body = canon::serialize(content).value();
    const auto again = make_plan_again(host(), "{\"digest\":\"" + canon::digest(body) +
                                                   "\",\"plan\":" + body + ",\"version\":1}\n");
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().code(), Code::denied) << again.error().message();
    EXPECT_NE(again.error().message().find("argv"), std::string::npos) << again.error().message();
}

TEST(MakePlanAgain, RefusesRubbish)
{
    for (const char* bytes : {"", "{}", "rubbish", "{\"version\":1}\n"}) {
        EXPECT_FALSE(make_plan_again(host(), bytes)) << bytes;
    }
}

}  // namespace
}  // namespace sandbox::supervisor
