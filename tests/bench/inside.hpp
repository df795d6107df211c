// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "product.hpp"
#include "timed.hpp"

namespace sandbox::bench {

struct Step {
    std::string name;
    Series time;
};

// What happens in the client before a launch, called in this process, many times each.
[[nodiscard]] Result<std::vector<Step>> measure_libraries(const Product& product, int repetitions);

struct ManySandboxes {
    int count = 0;
    Series ps;
    Series reconcile;
};
// `ps` and `reconcile` over a ledger of a thousand: half run (their shim is this process), half
// rest with their folders.
[[nodiscard]] Result<ManySandboxes> measure_many(const Product& product, const Options& options);

}  // namespace sandbox::bench
