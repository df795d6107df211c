// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <gtest/gtest.h>

#include "base/diagnostic.hpp"
#include "canon/json.hpp"
#include "golden.hpp"
#include "profile/document.hpp"
#include "profile/profile.hpp"

namespace sandbox::profile {

namespace {

const std::filesystem::path kFolder = GOLDEN_FOLDER;
const std::filesystem::path kShipped = SHIPPED_FOLDER;

std::string text_of(const std::vector<Diagnostic>& diagnostics)
{
    std::string text;
    for (const Diagnostic& diagnostic : diagnostics) {
        text += diagnostic.code + "\n    " + format(diagnostic) + "\n";
    }
    return text;
}

class ProfileGolden : public testing::TestWithParam<std::string> {};

// profile.toml (+ overlay.toml) -> profile.json or diagnostics.txt.
TEST_P(ProfileGolden, GivesTheRecordedResult)
{
    const auto folder = kFolder / GetParam();
    ParsedProfile result = parse_profile(golden::read_file(folder / "profile.toml"),
                                         "profile.toml");
    const std::string overlay = golden::read_file(folder / "overlay.toml");
    if (!overlay.empty()) {
        ASSERT_TRUE(result.profile) << text_of(result.diagnostics);
        result = apply_overlay(*result.profile, overlay, "overlay.toml");
    }
    EXPECT_EQ(result.profile.has_value(), result.diagnostics.empty());
    std::string json;
    if (result.profile) json = to_json(result.profile->profile).dump(2) + "\n";
    golden::expect_file(folder, "profile.json", json);
    golden::expect_file(folder, "diagnostics.txt", text_of(result.diagnostics));
}

// What is accepted has a normal form that reads back and obeys the published schema of a plan.
TEST_P(ProfileGolden, RoundTripsThroughTheNormalForm)
{
    const auto folder = kFolder / GetParam();
    const auto result = parse_profile(golden::read_file(folder / "profile.toml"), "profile.toml");
    if (!result.profile) return;
    const auto again = from_json(to_json(result.profile->profile));
    ASSERT_TRUE(again) << again.error().message();
    EXPECT_EQ(*again, result.profile->profile);
}

// What an editor marks with the published schema, the program refuses as well.
TEST_P(ProfileGolden, IsNotAcceptedAgainstThePublishedSchema)
{
    const auto folder = kFolder / GetParam();
    for (const auto& [file, name] :
         {std::pair("profile.toml", "profile"), std::pair("overlay.toml", "overlay")}) {
        const std::string text = golden::read_file(folder / file);
        const Document document = read_toml(text, file);
        if (text.empty() || !document.parsed || check_schema(name, document.json).empty()) continue;
        EXPECT_FALSE(golden::read_file(folder / "diagnostics.txt").empty()) << file;
    }
}

std::vector<std::string> recorded_cases()
{
    std::vector<std::string> cases = golden::cases_in(kFolder);
    std::erase(cases, "shipped");
    return cases;
}

class ShippedProfile : public testing::TestWithParam<std::string> {};

TEST_P(ShippedProfile, SaysInItsFirstLineWhatItIsFor)
{
    const std::string text = golden::read_file(kShipped / (GetParam() + ".toml"));
    EXPECT_TRUE(text.starts_with("# ")) << GetParam();
    EXPECT_GT(text.find('\n'), 30U);
}

TEST_P(ShippedProfile, ParsesToTheRecordedNormalForm)
{
    const std::string text = golden::read_file(kShipped / (GetParam() + ".toml"));
    const auto parsed = parse_profile(text, GetParam() + ".toml");
    ASSERT_TRUE(parsed.profile) << text_of(parsed.diagnostics);
    EXPECT_TRUE(check_schema("profile", read_toml(text, "").json).empty());
    EXPECT_EQ(parsed.profile->profile.name, GetParam());
    golden::expect_file(kFolder / "shipped", GetParam() + ".json",
                        to_json(parsed.profile->profile).dump(2) + "\n");
}

// The keys that the OCI driver does not enforce yet would be refused at launch.
TEST_P(ShippedProfile, AsksForNothingThatIsNotEnforcedToday)
{
    const std::string text = golden::read_file(kShipped / (GetParam() + ".toml"));
    const Profile profile = parse_profile(text, "p").profile.value().profile;
    EXPECT_EQ(profile.isolation, Isolation::sandbox);
    EXPECT_FALSE(std::holds_alternative<ImageRootfs>(profile.rootfs.source));
    EXPECT_EQ(profile.network, Network{});
    EXPECT_FALSE(profile.resources.disk || profile.resources.io_weight);
    EXPECT_TRUE(profile.secrets.empty() && !profile.process.terminal);
    for (const Mount& mount : profile.mounts) EXPECT_NE(mount.type, MountType::volume);
}

INSTANTIATE_TEST_SUITE_P(All, ShippedProfile,
                         testing::Values("agent-workspace", "ci-job", "node-build", "python-tool",
                                         "shell"),
                         [](const auto& param_info) {
                             std::string name = param_info.param;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

TEST(ShippedProfiles, AreAllListedAbove)
{
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kShipped)) {
        count += entry.path().extension() == ".toml" ? 1 : 0;
    }
    EXPECT_EQ(count, 5U);
}

INSTANTIATE_TEST_SUITE_P(Cases, ProfileGolden, testing::ValuesIn(recorded_cases()),
                         [](const auto& param_info) {
                             std::string name = param_info.param;
                             for (char& c : name) {
                                 if (c == '-') c = '_';
                             }
                             return name;
                         });

}  // namespace

}  // namespace sandbox::profile
