// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"

namespace sandbox::bench {

struct Options {
    int runs = 50;
    int warm_up = 5;
    int spacing_ms = 200;
    bool podman = true;
    bool json = false;
    bool help = false;
    std::string bin;               // folder of sandboxctl, sandbox-shim, sandbox-init
    std::string work = "/var/tmp";  // where the temporary --root is made
};

// Code::invalid_argument with a message for people.
[[nodiscard]] Result<Options> parse_options(int argc, char** argv);
std::string usage();

}  // namespace sandbox::bench
