// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>

#include "base/units.hpp"

namespace sandbox::daemon {

// root: a prefix of every path, for tests and a second instance; empty: none.
struct Options {
    std::string root;
    Millis reconcile_interval{60'000};  // a dead sandbox is swept by then, whoever ended it
    bool print_routes = false;
};

// Text to print and the status to exit with: help and version 0, wrong usage 2.
struct Answer {
    std::string text;
    int status = 0;
};
// Pure. argv as main() gets it.
std::variant<Options, Answer> parse_options(int argc, const char* const* argv);

}  // namespace sandbox::daemon
