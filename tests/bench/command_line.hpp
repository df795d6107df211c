// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
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
    bool calm = false;             // wait before each run until nothing else wants a CPU
    std::set<std::string> parts{"run", "exec", "launch", "inside"};
    std::string bin;               // folder of sandboxctl, sandbox-shim, sandbox-init
    std::string work = "/var/tmp";  // where the temporary --root is made
};

// Code::invalid_argument with a message for people.
[[nodiscard]] Result<Options> parse_options(int argc, char** argv);
std::string usage();
inline bool wants(const Options& options, const char* part) { return options.parts.contains(part); }

}  // namespace sandbox::bench
