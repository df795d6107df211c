// SPDX-License-Identifier: Apache-2.0
#include "golden.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

namespace sandbox::golden {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path)
{
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

std::vector<std::string> cases_in(const fs::path& folder)
{
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) {
        if (entry.is_directory()) names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

void expect_file(const fs::path& golden_case, const std::string& name, const std::string& actual)
{
    const fs::path path = golden_case / name;
    const std::string expected = read_file(path);
    if (expected == actual) return;
    if (std::getenv("SANDBOX_ACCEPT") == nullptr) {
        EXPECT_EQ(actual, expected) << path << "\nSANDBOX_ACCEPT=1 accepts what is said now";
        return;
    }
    if (actual.empty()) {
        fs::remove(path);
    } else {
        std::ofstream(path, std::ios::binary) << actual;
    }
    GTEST_SKIP() << "accepted " << path;
}

}  // namespace sandbox::golden
