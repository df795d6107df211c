// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "base/result.hpp"
#include "driver/tree.hpp"

namespace sandbox::driver {

// A masked path that does not exist in an operator's tree: an empty file is put there so that
// nobody can make it, and taken away again when unchanged (driver/resources.hpp).
struct Placeholder {
    HostPath path;
    bool operator==(const Placeholder&) const = default;
};
// Looks only. A missing parent is an error (Code::not_found).
[[nodiscard]] Result<std::vector<Placeholder>> list_placeholders(std::span<const TreeStep> steps);

}  // namespace sandbox::driver
