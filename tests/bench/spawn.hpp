// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.hpp"
#include "timed.hpp"

namespace sandbox::bench {

// From a spec in hand to the exit status of a static program that does nothing.
struct SpawnTimes {
    Series raw;  // clone3 of seven namespaces, id maps, bind, tmpfs, pivot_root, filter, exec
    Series box;  // confine::Box: the same tree, and /dev, /proc, masks, capabilities on top
};
[[nodiscard]] Result<SpawnTimes> measure_spawn(int repetitions);

}  // namespace sandbox::bench
