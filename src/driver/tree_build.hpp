// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "driver/sources.hpp"

namespace sandbox::driver {

// Carries out the steps: the tree ends up mounted at `rootfs`, an existing folder below `scratch`
// (an open folder of a private tmpfs, whose absolute path is `scratch_path`: overlay layers are
// named by path). Requires: a private mount namespace of our own.
[[nodiscard]] Status build_tree(std::span<const TreeStep> steps, PreparedSources sources,
                                int scratch, const std::string& scratch_path,
                                const std::string& rootfs);

}  // namespace sandbox::driver
