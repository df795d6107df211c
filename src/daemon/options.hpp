// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>

#include "base/units.hpp"

namespace sandbox::daemon {

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
std::variant<Options, Answer> parse_options(int argc, const char* const* argv);

}  // namespace sandbox::daemon
