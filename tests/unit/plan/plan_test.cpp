// SPDX-License-Identifier: Apache-2.0
#include "plan/plan.hpp"

#include <gtest/gtest.h>

#include <array>

#include "../resolve/world.hpp"
#include "canon/json.hpp"
#include "plan/codec.hpp"
#include "profile/profile.hpp"

namespace sandbox::plan {
namespace {

using canon::Json;
using resolve::test::full;
using resolve::test::hello;
using resolve::test::planned;
using resolve::test::World;

std::string file_of(const Json& content)
{
    const std::string body = canon::serialize(content).value();
    return "{\"digest\":\"" + canon::digest(body) + "\",\"plan\":" + body + ",\"version\":1}\n";
}

TEST(PlanFile, SurvivesEncodingAndDecoding)
{
    for (const World& world : {hello(), full()}) {
        const ExecutionPlan plan = planned(world);
        const auto back = decode_file(encode_file(plan).value());
        ASSERT_TRUE(back) << back.error().message();
        EXPECT_EQ(back->content(), plan.content());
        EXPECT_EQ(back->digest(), plan.digest());
    }
}

TEST(PlanFile, ObeysThePublishedSchema)
{
    for (const World& world : {hello(), full()}) {
        const Json json = canon::parse(encode_file(planned(world)).value()).value();
        for (const Diagnostic& flaw : profile::check_schema("plan", json)) {
            ADD_FAILURE() << format(flaw);
        }
    }
}

TEST(PlanFile, RefusesEveryChangedByte)
{
    // 0x20 turns "a" into "A", 0x80 breaks UTF-8, 1 makes another digit or letter.
    constexpr std::array<char, 3> kChanges{1, 0x20, static_cast<char>(0x80)};
    const std::string bytes = encode_file(planned(hello())).value();
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        std::string changed = bytes;
        changed[i] = static_cast<char>(changed[i] ^ kChanges.at(i % kChanges.size()));
        EXPECT_FALSE(decode_file(changed)) << "byte " << i << " of " << bytes.size();
    }
}

TEST(PlanFile, RefusesEveryTruncationAndTrailingBytes)
{
    const std::string bytes = encode_file(planned(hello())).value();
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        EXPECT_FALSE(decode_file(std::string_view(bytes).substr(0, size))) << size;
    }
    EXPECT_FALSE(decode_file(bytes + "\n"));
    EXPECT_FALSE(decode_file(" " + bytes));
}

TEST(PlanFile, RefusesAReformattedFileAndSaysHowToSaveIt)
{
    const Json json = canon::parse(encode_file(planned(hello())).value()).value();
    const auto plan = decode_file(json.dump(2));
    ASSERT_FALSE(plan);
    EXPECT_NE(plan.error().message().find("plan -o json"), std::string::npos)
        << plan.error().message();
}

TEST(PlanFile, NamesBothDigestsOfAnEditedFile)
{
    Json json = canon::parse(encode_file(planned(hello())).value()).value();
    json["plan"]["process"]["uid"] = 0;
    const auto plan = decode_file(canon::serialize(json).value() + "\n");
    ASSERT_FALSE(plan);
    EXPECT_NE(plan.error().message().find("it was edited"), std::string::npos);
    EXPECT_NE(plan.error().message().find(json["digest"].get<std::string>()), std::string::npos);
}

TEST(PlanFile, RefusesAnotherVersion)
{
    std::string bytes = encode_file(planned(hello())).value();
    bytes.replace(bytes.rfind(":1}"), 3, ":2}");
    const auto plan = decode_file(bytes);
    ASSERT_FALSE(plan);
    EXPECT_NE(plan.error().message().find("version 2"), std::string::npos);
}

// Visits every object below `json`, the root included.
template <class Visit>
void each_object(Json& json, Visit visit)
{
    if (json.is_object()) visit(json);
    if (json.is_structured()) {
        for (Json& item : json) each_object(item, visit);
    }
}

std::size_t objects_in(Json json)
{
    std::size_t count = 0;
    each_object(json, [&](Json&) { ++count; });
    return count;
}

// Objects whose keys are the author's: a new one there is new content, not an unknown key.
bool is_open(const Json& object, const Json& content)
{
    const Json& request = content["request"];
    for (const Json* open :
         {&content["process"]["env"], &content["process"]["rlimits"], &content["rootfs"]["etc"],
          &content["artifacts"], &request["labels"], &request["process"]["env"],
          &request["process"]["rlimits"], &request["secrets"], &content["facts"]}) {
        if (&object == open) return true;
    }
    return false;
}

TEST(PlanFile, RefusesAnUnknownKeyInEveryObjectEvenUnderARightDigest)
{
    const Json content = content_json(planned(full()).content());
    for (std::size_t wanted = 0; wanted < objects_in(content); ++wanted) {
        Json changed = content;
        std::size_t index = 0;
        bool skipped = false;
        each_object(changed, [&](Json& object) {
            if (index++ != wanted) return;
            if (is_open(object, changed)) skipped = true;
            object["unknown_key"] = 1;
        });
        if (!skipped) {
            EXPECT_FALSE(decode_file(file_of(changed))) << "object " << wanted;
        }
    }
}

TEST(PlanFile, RefusesAMissingKeyInEveryObjectEvenUnderARightDigest)
{
    const Json content = content_json(planned(full()).content());
    for (std::size_t wanted = 0; wanted < objects_in(content); ++wanted) {
        std::size_t keys = 0;
        for (std::size_t key = 0; key == 0 || key < keys; ++key) {
            Json changed = content;
            std::size_t index = 0;
            bool skipped = false;
            each_object(changed, [&](Json& object) {
                if (index++ != wanted) return;
                keys = object.size();
                skipped = is_open(object, changed) || keys == 0;
                if (!skipped) object.erase(std::next(object.begin(), static_cast<long>(key)));
            });
            if (!skipped) {
                EXPECT_FALSE(decode_file(file_of(changed))) << wanted << " " << key;
            }
        }
    }
}

TEST(PlanFile, RefusesEveryValueOfAnotherType)
{
    const Json content = content_json(planned(full()).content());
    const Json flat = content.flatten();
    for (const auto& [path, value] : flat.items()) {
        // Empty containers are told as null by flatten.
        if (value.is_null()) continue;
        Json changed = content;
        changed[Json::json_pointer(path)] = value.is_string() ? Json(7) : Json("seven");
        EXPECT_FALSE(decode_file(file_of(changed))) << path;
    }
}

TEST(Plan, HasAnotherDigestWhenAnyValueDiffers)
{
    const Json content = content_json(planned(full()).content());
    const std::string digest = canon::digest(canon::serialize(content).value());
    const Json flat = content.flatten();
    for (const auto& [path, value] : flat.items()) {
        Json changed = content;
        changed[Json::json_pointer(path)] = value.is_string() ? Json("other") : Json(123456);
        EXPECT_NE(canon::digest(canon::serialize(changed).value()), digest) << path;
    }
}

TEST(Plan, CannotBeSealedWithANumberThatHasNoCanonicalForm)
{
    PlanContent content = planned(hello()).content();
    content.process.rlimits["nofile"] = UINT64_MAX;
    EXPECT_FALSE(ExecutionPlan::seal(content));
}

TEST(PlanTable, SaysIsolationLimitsWarningsAndDigest)
{
    World world = full();
    world.profile.network.mode = profile::NetworkMode::host;
    world.lose("landlock.abi");
    const ExecutionPlan plan = planned(world);
    const std::string table = render_table(plan);
    for (const char* wanted :
         {"full", "shared-kernel", "oci", "/usr/bin/python3 -I main.py", "1000:1000",
          "bind of /srv/data", "masked", "HOST", "512MiB", "cgroup v1 memory.limit_in_bytes",
          "seccomp-bpf allowlist", "no Landlock", "warning"}) {
        EXPECT_NE(table.find(wanted), std::string::npos) << wanted << "\n" << table;
    }
    EXPECT_NE(table.find(plan.digest().str()), std::string::npos);
}

TEST(PlanTable, FitsAScreenForAPlainProfile)
{
    const std::string table = render_table(planned(hello()));
    EXPECT_LE(std::count(table.begin(), table.end(), '\n'), 35) << table;
}

TEST(PlanTable, CannotDriveATerminal)
{
    World world = hello();
    world.profile.process.argv = {"/bin/echo", "\x1b[31mred\n"};
    const std::string table = render_table(planned(world));
    EXPECT_EQ(table.find('\x1b'), std::string::npos);
    EXPECT_NE(table.find("\\x1b"), std::string::npos) << table;
}

TEST(PlanDiff, IsEmptyForEqualPlans)
{
    EXPECT_TRUE(diff(planned(full()), planned(full())).empty());
}

TEST(PlanDiff, NamesTheKeyBothValuesAndTheChangeClass)
{
    World other = full();
    other.profile.resources.memory = Bytes{1ULL << 30};
    const auto changes = diff(planned(full()), planned(other));
    ASSERT_EQ(changes.size(), 1U);
    EXPECT_EQ(changes[0].key, "resources.memory");
    EXPECT_EQ(changes[0].from, "536870912");
    EXPECT_EQ(changes[0].to, "1073741824");
    EXPECT_EQ(changes[0].change_class, profile::change_class("resources.memory"));
}

TEST(PlanDiff, NamesDerivedValuesWhenTheProfileStayed)
{
    World other = full();
    other.facts = resolve::test::host("v2");
    const auto changes = diff(planned(full()), planned(other));
    const bool found = std::any_of(changes.begin(), changes.end(), [](const Change& change) {
        return change.key == "plan.resources.version" && change.from == "v1" && change.to == "v2";
    });
    EXPECT_TRUE(found);
}

TEST(PlanDiff, NamesKeysThatWereAddedOrRemoved)
{
    World other = full();
    other.profile.mounts.pop_back();
    const auto changes = diff(planned(full()), planned(other));
    ASSERT_FALSE(changes.empty());
    EXPECT_EQ(changes[0].to, "(unset)");
    EXPECT_NE(changes[0].key.find("mount[2]"), std::string::npos) << changes[0].key;
}

}  // namespace
}  // namespace sandbox::plan
