// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

// A golden case is a folder: inputs beside what they must give. SANDBOX_ACCEPT=1 rewrites the
// expected files and then reports each case as skipped, so that accepting never looks green.
namespace sandbox::golden {

std::string read_file(const std::filesystem::path& path);  // empty when there is none
std::vector<std::string> cases_in(const std::filesystem::path& folder);  // sorted

// Compares `actual` with the file `name` of the case. An empty `actual` means: there is no such
// file. Records a gtest failure, or rewrites and skips.
void expect_file(const std::filesystem::path& golden_case, const std::string& name,
                 const std::string& actual);

}  // namespace sandbox::golden
