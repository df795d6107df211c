// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <regex>
#include <set>

#include "canon/json.hpp"
#include "profile/check.hpp"
#include "profile/document.hpp"
#include "profile/embedded.hpp"
#include "profile/names.hpp"
#include "profile/normal.hpp"
#include "profile/profile.hpp"
#include "profile/validator.hpp"
#include "sample.hpp"

namespace sandbox::profile {

using canon::Json;

namespace {

constexpr std::array<std::string_view, 8> kNames{"profile",  "overlay", "bundle", "config",
                                                 "snapshot", "plan",    "audit",  "guest"};

const Json& properties_of(const Json& node)
{
    static const Json kNone = Json::object();
    const auto found = node.find("properties");
    return found == node.end() ? kNone : *found;
}

// A string that obeys the node, chosen among spellings that the patterns want.
Json sample_string(const Json& node)
{
    static const std::string digest = "sha256:" + std::string(64, 'a');
    for (const std::string& text :
         {std::string("a"), std::string("/a"), std::string("1"), std::string("1s"),
          std::string("0022"), std::string("1000:1000"), std::string("host"), digest,
          std::string("2027-01-31"), std::string("2027-01-31T00:00:00Z")}) {
        if (text.size() < node.value("minLength", std::size_t{0})) continue;
        if (text.size() > node.value("maxLength", SIZE_MAX)) continue;
        const auto pattern = node.find("pattern");
        if (pattern != node.end() &&
            !std::regex_search(text, std::regex(pattern->get<std::string>()))) {
            continue;
        }
        return text;
    }
    ADD_FAILURE() << "no sample for " << node;
    return "";
}

// A document with every property the schema knows.
Json sample(const Json& node)
{
    if (const auto value = node.find("const"); value != node.end()) return *value;
    if (const auto values = node.find("enum"); values != node.end()) return values->back();
    const Json type = node.value("type", Json("object"));
    const std::string name = type.is_array() ? type.front().get<std::string>()
                                             : type.get<std::string>();
    if (name == "string") return sample_string(node);
    if (name == "boolean") return true;
    if (name == "integer" || name == "number") return node.value("minimum", Json(1));
    if (name == "array") {
        const auto items = node.find("items");
        return Json::array({items == node.end() ? Json(1) : sample(*items)});
    }
    Json object = Json::object();
    for (const auto& [key, member] : properties_of(node).items()) {
        if (object.size() == node.value("maxProperties", SIZE_MAX)) break;
        object[key] = sample(member);
    }
    const auto additional = node.find("additionalProperties");
    if (additional != node.end() && additional->is_object()) {
        const auto names = node.find("propertyNames");
        const bool listed = names != node.end() && names->contains("enum");
        object[listed ? names->at("enum").front().get<std::string>() : "a"] = sample(*additional);
    }
    return object;
}

struct Broken {
    std::string rule;
    Json value;
};

void broken_strings(const Json& node, std::vector<Broken>& out)
{
    if (node.value("minLength", std::size_t{0}) > 0) out.push_back({"minLength", ""});
    if (node.contains("maxLength")) {
        out.push_back({"maxLength", std::string(node["maxLength"].get<std::size_t>() + 1, 'a')});
    }
    // Every pattern refuses white space, in front as well.
    if (node.contains("pattern")) {
        out.push_back({"pattern", std::string(node.value("minLength", std::size_t{1}), ' ')});
    }
}

void broken_lists(const Json& node, const Json& good, std::vector<Broken>& out)
{
    if (node.contains("minItems")) out.push_back({"minItems", Json::array()});
    if (node.contains("maxItems")) {
        Json list = Json::array();
        for (std::size_t i = 0; i <= node["maxItems"].get<std::size_t>(); ++i) {
            const bool distinct = node.value("uniqueItems", false);
            list.push_back(distinct ? Json("/a" + std::to_string(i)) : good.front());
        }
        out.push_back({"maxItems", std::move(list)});
    }
    if (node.value("uniqueItems", false)) {
        out.push_back({"uniqueItems", Json::array({good.front(), good.front()})});
    }
}

void broken_objects(const Json& node, const Json& good, std::vector<Broken>& out)
{
    const Json required = node.value("required", Json::array());
    for (const Json& key : required) {
        Json object = good;
        object.erase(key.get<std::string>());
        out.push_back({"required", std::move(object)});
    }
    if (node.value("additionalProperties", Json(true)) == false) {
        Json object = good;
        object["Bogus"] = 1;
        out.push_back({"additionalProperties", std::move(object)});
    }
    if (node.contains("minProperties")) out.push_back({"minProperties", Json::object()});
    if (node.contains("maxProperties")) {
        Json object = good;
        const Json member = good.empty() ? Json(1) : good.front();
        for (std::size_t i = 0; i <= node["maxProperties"].get<std::size_t>(); ++i) {
            object["k" + std::to_string(i)] = member;
        }
        out.push_back({"maxProperties", std::move(object)});
    }
    if (node.contains("propertyNames")) {
        Json object = good;
        object[std::string(300, 'n')] = good.empty() ? Json(1) : good.front();
        out.push_back({"propertyNames", std::move(object)});
    }
}

// For each rule of the node a value that breaks it.
std::vector<Broken> broken(const Json& node, const Json& good)
{
    std::vector<Broken> out;
    if (node.contains("type")) {
        const bool object = node["type"] == "object" || node["type"].is_array();
        out.push_back({"type", object ? Json(Json::array()) : Json(Json::object())});
        if (node["type"].is_array() && node["type"].front() == "object") out.back().value = 1.5;
    }
    if (node.contains("const")) out.push_back({"const", node["const"] == 1 ? Json(2) : Json("zz")});
    if (node.contains("enum")) out.push_back({"enum", "bogus"});
    if (node.contains("minimum")) {
        const Json& low = node["minimum"];
        out.push_back(
            {"minimum", low.is_number_float() ? Json(0.0) : Json(low.get<std::int64_t>() - 1)});
    }
    if (node.contains("maximum")) {
        out.push_back({"maximum", node["maximum"].get<std::int64_t>() + 1});
    }
    if (good.is_string()) broken_strings(node, out);
    if (good.is_array()) broken_lists(node, good, out);
    if (good.is_object()) broken_objects(node, good, out);
    return out;
}

// Visits each schema node together with the place of its value in the sample.
void walk(const Json& node, const Json& document, const Json::json_pointer& at,
          const std::function<void(const Json&, const Json::json_pointer&)>& visit)
{
    visit(node, at);
    const Json& value = document.at(at);
    for (const auto& [key, member] : properties_of(node).items()) {
        if (value.is_object() && value.contains(key)) walk(member, document, at / key, visit);
    }
    if (node.contains("items") && value.is_array()) walk(node["items"], document, at / 0, visit);
    const auto additional = node.find("additionalProperties");
    if (additional == node.end() || !additional->is_object()) return;
    for (const auto& [key, member] : value.items()) {
        if (!properties_of(node).contains(key)) {
            walk(*additional, document, at / key, visit);
        }
    }
}

// Every keyword that appears as a rule somewhere in the schema.
void rules_of(const Json& node, std::set<std::string>& rules)
{
    static const std::set<std::string> silent{"$schema",     "$id",     "title",
                                              "description", "default", "x-change-class",
                                              "properties",  "items"};
    for (const auto& [key, value] : node.items()) {
        if (!silent.contains(key)) rules.insert(key);
    }
    for (const auto& [key, member] : properties_of(node).items()) {
        rules_of(member, rules);
    }
    if (node.contains("items")) rules_of(node["items"], rules);
    const auto additional = node.find("additionalProperties");
    if (additional != node.end() && additional->is_object()) rules_of(*additional, rules);
}

class PublishedSchema : public testing::TestWithParam<std::string_view> {
protected:
    const Json& schema_json() const { return *published_schema(GetParam()); }
};

}  // namespace

TEST_P(PublishedSchema, AcceptsADocumentWithEveryProperty)
{
    const Json document = sample(schema_json());
    const auto flaws = check_schema(GetParam(), document);
    EXPECT_TRUE(flaws.empty()) << format(flaws.front()) << "\n" << document.dump(1);
}

// valijson ignores what it does not know: a rule that refuses nothing here is not one.
TEST_P(PublishedSchema, EveryRuleRefusesSomething)
{
    const Json document = sample(schema_json());
    std::set<std::string> tried;
    walk(schema_json(), document, Json::json_pointer(),
         [&](const Json& node, const Json::json_pointer& at) {
             for (const Broken& wrong : broken(node, document.at(at))) {
                 Json changed = document;
                 changed.at(at) = wrong.value;
                 tried.insert(wrong.rule);
                 const auto flaws = check_schema(GetParam(), changed);
                 EXPECT_FALSE(flaws.empty()) << GetParam() << at << ": " << wrong.rule;
                 // Where code has no words of its own valijson's must not leak, patterns excepted.
                 for (const Diagnostic& flaw : flaws) {
                     EXPECT_TRUE(flaw.code != "schema" || wrong.rule == "pattern")
                         << at << ": " << wrong.rule << ": " << flaw.message;
                 }
             }
         });
    std::set<std::string> rules;
    rules_of(schema_json(), rules);
    for (const std::string& rule : rules) {
        if (rule == "additionalProperties" && !tried.contains(rule)) continue;  // audit: open
        EXPECT_TRUE(tried.contains(rule)) << GetParam() << " has a rule no value breaks: " << rule;
    }
}

// The lean schema decides on the launch path. All it may lack are patterns and uniqueness, which
// the code checks: see below, and ParseBundle.RefusesRepeatedItems.
TEST_P(PublishedSchema, IsTheSameAsTheLeanOneExceptForPatternsAndUniqueness)
{
    const Json document = sample(schema_json());
    walk(schema_json(), document, Json::json_pointer(),
         [&](const Json& node, const Json::json_pointer& at) {
             for (const Broken& wrong : broken(node, document.at(at))) {
                 if (wrong.rule == "pattern" || wrong.rule == "uniqueItems") continue;
                 Json changed = document;
                 changed.at(at) = wrong.value;
                 EXPECT_FALSE(lean_validator(GetParam())->validate(changed).empty())
                     << GetParam() << at << ": " << wrong.rule;
             }
         });
}

TEST_P(PublishedSchema, DescribesEveryProperty)
{
    const Json& root = schema_json();
    EXPECT_EQ(root.at("$schema"), "http://json-schema.org/draft-07/schema#");
    EXPECT_TRUE(root.contains("$id"));
    std::function<void(const Json&, const std::string&)> visit = [&](const Json& node,
                                                                     const std::string& path) {
        for (const auto& [key, member] : properties_of(node).items()) {
            EXPECT_TRUE(member.contains("description")) << GetParam() << ": " << path << "." << key;
            visit(member, path + "." + key);
        }
        if (node.contains("items")) visit(node["items"], path + "[]");
        const auto additional = node.find("additionalProperties");
        if (additional != node.end() && additional->is_object()) visit(*additional, path + ".*");
    };
    visit(root, "");
}

TEST_P(PublishedSchema, ReportsEachFailureOnce)
{
    Json document = sample(schema_json());
    document["version"] = 7;
    const auto failures = published_validator(GetParam())->validate(document);
    for (std::size_t i = 0; i < failures.size(); ++i) {
        for (std::size_t j = i + 1; j < failures.size(); ++j) EXPECT_NE(failures[i], failures[j]);
    }
    ASSERT_FALSE(failures.empty());
}

INSTANTIATE_TEST_SUITE_P(All, PublishedSchema, testing::ValuesIn(kNames),
                         [](const auto& param_info) { return std::string(param_info.param); });

TEST(Schemas, AreTheOnesThatAreNamed)
{
    EXPECT_EQ(kEmbeddedSchemaCount, kNames.size());
    for (const auto name : kNames) EXPECT_FALSE(schema(name).empty()) << name;
    EXPECT_TRUE(schema("bogus").empty());
    EXPECT_EQ(check_schema("bogus", Json::object()).size(), 1U);
}

TEST(Schemas, NamePlacesAsKeyPaths)
{
    Json document = sample(*published_schema("profile"));
    document["mount"][0]["type"] = "bindd";
    document["labels"]["a.b"] = 1;
    const auto flaws = check_schema("profile", document);
    ASSERT_EQ(flaws.size(), 2U);
    EXPECT_EQ(flaws[0].key, "labels.\"a.b\"");
    EXPECT_EQ(flaws[1].key, "mount[0].type");
}

// The words of an enumeration stand in the schema, in names.cpp and in no third place.
TEST(Schemas, SpellEnumerationsAsTheCodeDoes)
{
    const auto words = [](const char* name, const char* pointer) {
        std::set<std::string> set;
        for (const Json& word : published_schema(name)->at(Json::json_pointer(pointer))) {
            set.insert(word.get<std::string>());
        }
        return set;
    };
    const auto coded = [](auto value) {
        const auto names = names_of(value);
        return std::set<std::string>(names.begin(), names.end());
    };
    EXPECT_EQ(words("profile", "/properties/isolation/enum"), coded(Isolation{}));
    EXPECT_EQ(words("profile", "/properties/driver/enum"), coded(Driver{}));
    EXPECT_EQ(words("profile", "/properties/mount/items/properties/type/enum"), coded(MountType{}));
    const std::string network = "/properties/network/properties/";
    EXPECT_EQ(words("profile", (network + "mode/enum").c_str()), coded(NetworkMode{}));
    EXPECT_EQ(words("profile", (network + "rule/items/properties/action/enum").c_str()),
              coded(RuleAction{}));
    EXPECT_EQ(words("profile", (network + "rule/items/properties/protocol/enum").c_str()),
              coded(Protocol{}));
    EXPECT_EQ(words("profile", "/properties/security/properties/seccomp/enum"),
              coded(SeccompProfile{}));
    EXPECT_EQ(words("profile", "/properties/lifecycle/properties/restart/enum"),
              coded(RestartPolicy{}));
    const auto limits = rlimit_names();
    EXPECT_EQ(words("profile", "/properties/process/properties/rlimits/propertyNames/enum"),
              std::set<std::string>(limits.begin(), limits.end()));
    EXPECT_EQ(words("bundle", "/properties/drivers/items/enum"), coded(Driver{}));
    EXPECT_EQ(words("config", "/properties/drivers/items/enum"), coded(Driver{}));
}

// What an editor marks by a pattern, the programs refuse in code: nothing slips between.
TEST(Schemas, PatternsRefuseNothingThatTheCodeAccepts)
{
    const auto pattern = [](const char* pointer) {
        return std::regex(
            published_schema("profile")->at(Json::json_pointer(pointer)).get<std::string>());
    };
    const std::regex label = pattern("/properties/name/pattern");
    const std::regex size = pattern("/properties/resources/properties/memory/pattern");
    const std::regex duration = pattern("/properties/process/properties/timeout/pattern");
    const std::regex user = pattern("/properties/process/properties/user/pattern");
    const std::regex umask = pattern("/properties/process/properties/umask/pattern");
    const std::regex path = pattern("/properties/process/properties/cwd/pattern");
    const std::regex rootfs = pattern("/properties/rootfs/properties/source/pattern");
    std::size_t accepted = 0;
    const auto agree = [&](const std::string& text, bool code, const std::regex& regex) {
        accepted += code ? 1 : 0;
        EXPECT_TRUE(!code || std::regex_search(text, regex)) << text;
    };
    for (const std::string text : {"",
                                   "0",
                                   "1",
                                   "01",
                                   "a",
                                   "A",
                                   "-a",
                                   "a-",
                                   "a-b",
                                   "1KiB",
                                   "1MB",
                                   "0B",
                                   "00",
                                   "1s",
                                   "1h30m",
                                   "30m1h",
                                   "1ms",
                                   "1s1s",
                                   "1.5h",
                                   "0s",
                                   "1000:1000",
                                   "1:",
                                   "4294967294",
                                   "0022",
                                   "777",
                                   "0888",
                                   "01777",
                                   "/",
                                   "/a",
                                   "//",
                                   "a/b",
                                   "host",
                                   "hosts",
                                   "dir:/a",
                                   "dir:a",
                                   "image:a",
                                   " 1",
                                   "1 ",
                                   "1\n",
                                   "18446744073709551615",
                                   "17179869183GiB",
                                   "876000h",
                                   "1TiB",
                                   "a_b"}) {
        agree(text, !flaw_in_label(text), label);
        agree(text, parse_bytes(text).has_value(), size);
        agree(text, parse_duration(text).has_value(), duration);
        agree(text, parse_user(text).has_value(), user);
        agree(text, parse_mode(text, 0777).has_value(), umask);
        agree(text, !flaw_in_path(text), path);
        const auto root = parse_rootfs(text);
        const auto* dir = root ? std::get_if<DirRootfs>(&root->source) : nullptr;
        agree(text, root && (dir == nullptr || !flaw_in_path(dir->path.str())), rootfs);
    }
    EXPECT_GT(accepted, 30U);
}

TEST(ChangeClasses, StandAtEveryKeyOfTheProfile)
{
    std::size_t leaves = 0;
    std::function<void(const Json&, const std::string&)> visit = [&](const Json& node,
                                                                     const std::string& path) {
        for (const auto& [key, member] : properties_of(node).items()) {
            const std::string place = path.empty() ? key : path + "." + key;
            if (member.contains("properties")) {
                visit(member, place);
                continue;
            }
            ++leaves;
            ASSERT_TRUE(member.contains("x-change-class")) << place;
            EXPECT_EQ(to_string(change_class(place)), member["x-change-class"]) << place;
            if (member.contains("items")) visit(member["items"], place);
        }
    };
    for (const char* name : {"profile"}) visit(*published_schema(name), "");
    EXPECT_GT(leaves, 50U);
}

TEST(ChangeClasses, AreFoundWithAndWithoutIndices)
{
    EXPECT_EQ(change_class("resources.memory"), ChangeClass::live);
    EXPECT_EQ(change_class("process.argv"), ChangeClass::next_start);
    EXPECT_EQ(change_class("process.argv[0]"), ChangeClass::next_start);
    EXPECT_EQ(change_class("process.env.\"A.B\""), ChangeClass::next_start);
    EXPECT_EQ(change_class("mount[3].source"), ChangeClass::next_start);
    EXPECT_EQ(change_class("mount.source"), ChangeClass::next_start);
    EXPECT_EQ(change_class("network.rule[0].host"), ChangeClass::live);
    EXPECT_EQ(change_class("lifecycle.health.retries"), ChangeClass::live);
    EXPECT_EQ(change_class("labels.team"), ChangeClass::live);
    EXPECT_EQ(change_class("isolation"), ChangeClass::replace);
    EXPECT_EQ(change_class("no.such.key"), ChangeClass::replace);
    EXPECT_EQ(change_class(""), ChangeClass::replace);
}

}  // namespace sandbox::profile
