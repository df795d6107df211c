// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "command_line.hpp"
#include "inside.hpp"
#include "peers.hpp"
#include "product.hpp"
#include "sessions.hpp"
#include "spawn.hpp"

namespace sandbox::bench {

struct Figures {
    Peers peers;
    PhaseTimes launch;
    double first_byte_ms = 0;
    std::vector<Step> steps;
    ManySandboxes many;
    ResidentMemory memory;
    SessionTimes sessions;
    SpawnTimes spawn;
    std::string machine;  // kernel, CPUs, load, file system
};

// For people. Judges nothing: a figure past its target is marked, and that is all.
std::string render(const Figures& figures, const Options& options);
[[nodiscard]] Result<std::string> render_json(const Figures& figures, const Options& options);

}  // namespace sandbox::bench
