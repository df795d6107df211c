// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <gtest/gtest.h>

#include "base/diagnostic.hpp"
#include "canon/json.hpp"
#include "golden.hpp"
#include "policy/policy.hpp"

namespace sandbox::policy {

namespace {

namespace fs = std::filesystem;

const fs::path kFolder = GOLDEN_FOLDER;

class PolicyGolden : public testing::TestWithParam<std::string> {};

// Every *.toml of the case is a bundle; one with diagnostics counts as broken.
TEST_P(PolicyGolden, ExplainsTheRecordedMeet)
{
    const fs::path folder = kFolder / GetParam();
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(folder)) {
        if (entry.path().extension() == ".toml") files.push_back(entry.path().filename().string());
    }
    std::sort(files.begin(), files.end());
    std::vector<LocatedBundle> bundles;
    std::vector<BrokenBundle> broken;
    std::string complaints;
    for (const std::string& file : files) {
        ParsedBundle parsed = parse_bundle(golden::read_file(folder / file), file);
        if (parsed.bundle) {
            bundles.push_back(*std::move(parsed.bundle));
            continue;
        }
        for (const Diagnostic& diagnostic : parsed.diagnostics) {
            complaints += diagnostic.code + "\n    " + format(diagnostic) + "\n";
        }
        broken.push_back({file, parsed.diagnostics.front().message});
    }
    const auto policy = EffectivePolicy::meet(bundles, broken);
    golden::expect_file(folder, "diagnostics.txt", complaints);
    golden::expect_file(folder, "explain.txt", render_explain(policy));
    golden::expect_file(folder, "policy.json", to_json(policy).dump(2) + "\n");
}

INSTANTIATE_TEST_SUITE_P(Cases, PolicyGolden, testing::ValuesIn(golden::cases_in(kFolder)),
                         [](const auto& param_info) {
                             std::string name = param_info.param;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

}  // namespace

}  // namespace sandbox::policy
