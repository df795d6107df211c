// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "../ledger/support.hpp"
#include "shim/log_record.hpp"
#include "shim/request.hpp"

namespace sandbox::shim::test {

using ledger::test::read_bytes;
using ledger::test::TempDir;
using ledger::test::write_bytes;

// Records of one file of a log folder; a line that does not decode fails the test.
std::vector<LogRecord> records_of(const std::string& file);

// Runs `work` in a forked child with a mount namespace of its own; "" is success, else what failed.
std::string in_child(const std::function<std::string()>& work);

// A request that binds sandbox 1, "web", to folders below `root`.
LaunchRequest request_below(const std::string& root);

}  // namespace sandbox::shim::test
