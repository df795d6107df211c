// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>

#include "canon/json.hpp"
#include "profile/names.hpp"
#include "profile/profile.hpp"
#include "sample.hpp"

namespace sandbox::profile {

using canon::Json;

namespace {

Profile full() { return parse_profile(kEveryKey, "full.toml").profile.value().profile; }

// Calls `change` with a copy of the document for each place in it.
void at_each_place(const Json& document, const Json::json_pointer& at,
                   const std::function<void(const Json::json_pointer&)>& visit)
{
    const Json& value = document.at(at);
    visit(at);
    if (value.is_object()) {
        for (const auto& [key, member] : value.items()) at_each_place(document, at / key, visit);
    } else if (value.is_array()) {
        for (std::size_t i = 0; i < value.size(); ++i) at_each_place(document, at / i, visit);
    }
}

template <class Enum>
void expect_names(std::size_t count)
{
    const auto names = names_of(Enum{});
    EXPECT_EQ(names.size(), count);
    for (std::size_t i = 0; i < names.size(); ++i) {
        EXPECT_EQ(from_name<Enum>(names[i]), static_cast<Enum>(i));
        EXPECT_EQ(to_string(static_cast<Enum>(i)), names[i]);
    }
    EXPECT_EQ(from_name<Enum>("bogus"), std::nullopt);
    EXPECT_EQ(from_name<Enum>(""), std::nullopt);
    EXPECT_EQ(to_string(static_cast<Enum>(99)), "invalid");
}

}  // namespace

TEST(NormalForm, RoundTripsTheFullAndTheLeastProfile)
{
    for (const std::string_view text : {kEveryKey, kMinimal}) {
        const Profile profile = parse_profile(text, "f").profile.value().profile;
        const auto again = from_json(to_json(profile));
        ASSERT_TRUE(again) << again.error().message();
        EXPECT_EQ(*again, profile);
    }
}

TEST(NormalForm, HasACanonicalSerialization)
{
    const auto bytes = canon::serialize(to_json(full()));
    ASSERT_TRUE(bytes) << bytes.error().message();
    const auto parsed = canon::parse(*bytes);
    ASSERT_TRUE(parsed);
    EXPECT_EQ(from_json(*parsed).value(), full());
}

TEST(NormalForm, ObeysTheSchemaOfAPlansRequest)
{
    const auto schema_text = schema("plan");
    const Json plan = Json::parse(schema_text);
    EXPECT_TRUE(plan.at("properties").at("plan").at("properties").contains("request"));
    const Json& request = plan.at("properties").at("plan").at("properties").at("request");
    const Json json = to_json(full());
    for (const auto& [key, value] : json.items()) {
        EXPECT_TRUE(request.at("properties").contains(key)) << key;
    }
    EXPECT_EQ(request.at("properties").size(), json.size());
}

TEST(NormalForm, RefusesAMissingKeyAnywhere)
{
    const Json json = to_json(full());
    std::size_t tried = 0;
    at_each_place(json, Json::json_pointer(), [&](const Json::json_pointer& at) {
        if (at.empty() || !json.at(at.parent_pointer()).is_object()) return;
        const std::string parent = at.parent_pointer().to_string();
        // Maps of the user's own keys may lose one.
        for (const char* map : {"/labels", "/process/env", "/process/rlimits", "/secrets"}) {
            if (parent == map) return;
        }
        Json changed = json;
        changed.at(at.parent_pointer()).erase(at.back());
        EXPECT_FALSE(from_json(changed)) << at;
        ++tried;
    });
    EXPECT_GT(tried, 60U);
}

TEST(NormalForm, RefusesAnUnknownKeyAnywhere)
{
    const Json json = to_json(full());
    at_each_place(json, Json::json_pointer(), [&](const Json::json_pointer& at) {
        if (!json.at(at).is_object()) return;
        Json changed = json;
        changed.at(at)["Bogus Key"] = 1;
        EXPECT_FALSE(from_json(changed)) << at;
    });
}

TEST(NormalForm, RefusesAnotherTypeAnywhere)
{
    const Json json = to_json(full());
    at_each_place(json, Json::json_pointer(), [&](const Json::json_pointer& at) {
        if (at.empty()) return;
        for (const Json& wrong : {Json(1.5), Json(-1), Json(Json::array({Json::array()}))}) {
            Json changed = json;
            changed.at(at) = wrong;
            EXPECT_FALSE(from_json(changed)) << at << " = " << wrong;
        }
    });
}

TEST(NormalForm, RefusesWhatTheTomlReaderWouldRefuse)
{
    const Json json = to_json(full());
    const auto refuses = [&](const char* at, const Json& value) {
        Json changed = json;
        changed.at(Json::json_pointer(at)) = value;
        return !from_json(changed);
    };
    EXPECT_FALSE(refuses("/name", "full"));
    EXPECT_TRUE(refuses("/name", "Full"));
    EXPECT_TRUE(refuses("/version", 2));
    EXPECT_TRUE(refuses("/mount/0/source", "/var/run/docker.sock"));
    EXPECT_TRUE(refuses("/mount/0/target", "/proc"));
    EXPECT_TRUE(refuses("/process/user", "0:0"));  // with a writable bind
    EXPECT_TRUE(refuses("/process/user", "01001:1002"));
    EXPECT_TRUE(refuses("/process/umask", "27"));
    EXPECT_TRUE(refuses("/process/idle", true));
    EXPECT_TRUE(refuses("/network/rule/0/host", "API.example.com"));
    EXPECT_TRUE(refuses("/network/rule/0/port", 65536 + 443));
    EXPECT_TRUE(refuses("/network/mode", "none"));
    EXPECT_TRUE(refuses("/network/publish/0/host", "[0::1]:80"));
    EXPECT_TRUE(refuses("/resources/pids", 0));
    EXPECT_TRUE(refuses("/resources/cpuset", "1,0"));
    EXPECT_TRUE(refuses("/security/capabilities", {"CAP_NET_RAW", "CAP_CHOWN"}));
    EXPECT_TRUE(refuses("/lifecycle/restart", "no"));  // with max_restarts
    EXPECT_TRUE(refuses("/lifecycle/ttl", 0));
    EXPECT_TRUE(refuses("/rootfs/source", "dir:/etc/../"));
    EXPECT_TRUE(refuses("/secrets/KEY/env", "ALSO"));
}

TEST(NormalForm, EveryFieldReachesTheNormalForm)
{
    // No two of the full profile's scalars may be left out together: changing one changes the JSON.
    const Json json = to_json(full());
    Profile changed = full();
    changed.lifecycle.health->retries = 9;
    EXPECT_NE(to_json(changed), json);
    changed = full();
    changed.network.rules.back().reason = "other";
    EXPECT_NE(to_json(changed), json);
    changed = full();
    changed.secrets[0].file = GuestPath("/other");
    EXPECT_NE(to_json(changed), json);
    changed = full();
    changed.microvm.memory = Bytes{1};
    EXPECT_NE(to_json(changed), json);
}

TEST(Names, AreOneToOneWithTheirEnumerators)
{
    expect_names<Isolation>(2);
    expect_names<Driver>(3);
    expect_names<MountType>(3);
    expect_names<NetworkMode>(3);
    expect_names<RuleAction>(2);
    expect_names<Protocol>(2);
    expect_names<SeccompProfile>(2);
    expect_names<RestartPolicy>(3);
    expect_names<ChangeClass>(3);
}

}  // namespace sandbox::profile
