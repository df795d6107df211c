// SPDX-License-Identifier: Apache-2.0
// Each folder of cases/ is one case: profile.toml, optionally bundles/*.toml and overlay.toml, and
// facts.json go in; plan.json, table.txt and audit.json, or denials.json, denials.txt and
// audit.json, or diagnostics.txt alone come out. SANDBOX_ACCEPT=1 rewrites what comes out.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <stdexcept>

#include "audit/audit.hpp"
#include "canon/json.hpp"
#include "golden.hpp"
#include "policy/policy.hpp"
#include "profile/profile.hpp"
#include "resolve/resolve.hpp"

namespace sandbox::resolve {
namespace {

namespace fs = std::filesystem;
using golden::read_file;

using Files = std::map<std::string, std::string>;

constexpr const char* kOutputs[] = {"plan.json",   "table.txt",  "denials.json",
                                    "denials.txt", "audit.json", "diagnostics.txt"};

std::string line_of(const canon::Json& json) { return canon::serialize(json).value() + "\n"; }

void expect_schema(const char* schema, const canon::Json& json)
{
    for (const Diagnostic& flaw : profile::check_schema(schema, json)) {
        ADD_FAILURE() << schema << ": " << format(flaw);
    }
}

policy::EffectivePolicy read_policy(const fs::path& folder)
{
    std::vector<policy::LocatedBundle> bundles;
    std::vector<policy::BrokenBundle> broken;
    if (fs::exists(folder)) {
        for (const auto& entry : fs::directory_iterator(folder)) {
            const std::string file = "org.d/" + entry.path().filename().string();
            auto parsed = policy::parse_bundle(read_file(entry.path()), file);
            if (parsed.bundle) {
                bundles.push_back(*std::move(parsed.bundle));
            } else {
                broken.push_back({file, format(parsed.diagnostics.at(0))});
            }
        }
    }
    return policy::EffectivePolicy::meet(std::move(bundles), std::move(broken));
}

audit::AuditRecord record_of(audit::Body body)
{
    return {{{}, {}, 0, "", "2026-01-01T00:00:00Z"}, std::move(body)};
}

Files diagnostics(const std::vector<Diagnostic>& found)
{
    std::string text;
    for (const Diagnostic& diagnostic : found) text += format(diagnostic) + "\n";
    return {{"diagnostics.txt", text}};
}

Files outcome(const Request& request, const policy::EffectivePolicy& policy,
              const facts::CapabilitySnapshot& snapshot)
{
    const Resolution resolution = resolve(request, policy, snapshot);
    Files out;
    audit::Body body;
    if (const auto* plan = std::get_if<plan::ExecutionPlan>(&resolution)) {
        out["plan.json"] = plan::encode_file(*plan).value();
        out["table.txt"] = plan::render_table(*plan);
        expect_schema("plan", canon::parse(out["plan.json"]).value());
        body = audit::resolved(*plan);
    } else {
        const auto& denials = std::get<std::vector<Denial>>(resolution);
        out["denials.json"] = line_of(to_json(denials));
        out["denials.txt"] = render(denials);
        body = to_audit(request, policy, denials);
    }
    const canon::Json audit = audit::to_json(record_of(std::move(body)));
    expect_schema("audit", audit);
    out["audit.json"] = line_of(audit);
    return out;
}

Files run(const fs::path& folder)
{
    const auto facts = canon::parse(read_file(folder / "facts.json"));
    if (!facts) throw std::runtime_error("facts.json: " + facts.error().message());
    expect_schema("snapshot", *facts);
    const auto snapshot = facts::snapshot_from_json(*facts);
    if (!snapshot) throw std::runtime_error("facts.json: " + snapshot.error().message());

    auto parsed = profile::parse_profile(read_file(folder / "profile.toml"), "profile.toml");
    if (!parsed.profile) return diagnostics(parsed.diagnostics);
    if (fs::exists(folder / "overlay.toml")) {
        parsed = profile::apply_overlay(*parsed.profile, read_file(folder / "overlay.toml"),
                                        "overlay.toml");
        if (!parsed.profile) return diagnostics(parsed.diagnostics);
    }
    return outcome({parsed.profile->profile, parsed.profile->where},
                   read_policy(folder / "bundles"), *snapshot);
}

class ResolveGolden : public testing::TestWithParam<std::string> {};

TEST_P(ResolveGolden, ComesOutAsRecorded)
{
    const fs::path folder = fs::path(GOLDEN_FOLDER) / "cases" / GetParam();
    Files got = run(folder);
    for (const char* name : kOutputs) golden::expect_file(folder, name, got[name]);
}

INSTANTIATE_TEST_SUITE_P(Cases, ResolveGolden,
                         testing::ValuesIn(golden::cases_in(fs::path(GOLDEN_FOLDER) / "cases")),
                         [](const auto& param) {
                             std::string name = param.param;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

// Every curated profile has a case that follows the file itself.
TEST(ResolveGoldenCases, HoldEveryCuratedProfile)
{
    const fs::path profiles = fs::path(GOLDEN_FOLDER) / "../../../profiles";
    std::size_t seen = 0;
    for (const auto& entry : fs::directory_iterator(profiles)) {
        if (entry.path().extension() != ".toml") continue;
        ++seen;
        const fs::path link = fs::path(GOLDEN_FOLDER) / "cases" /
                              ("profile-" + entry.path().stem().string()) / "profile.toml";
        EXPECT_TRUE(fs::exists(link) && fs::equivalent(link, entry.path())) << link;
    }
    EXPECT_GE(seen, 5U);
}

}  // namespace
}  // namespace sandbox::resolve
