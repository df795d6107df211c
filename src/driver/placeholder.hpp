// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "base/result.hpp"
#include "driver/tree.hpp"
#include "sys/fd.hpp"

namespace sandbox::driver {

// A masked path that does not exist in an operator's tree: an empty file is put there so that
// nobody can make it, and taken away again when unchanged.
struct Placeholder {
    HostPath path;
    bool operator==(const Placeholder&) const = default;
};
// Looks only. A missing parent is an error (Code::not_found).
[[nodiscard]] Result<std::vector<Placeholder>> list_placeholders(std::span<const TreeStep> steps);
// O_EXCL: somebody else's file there is Code::already_exists.
[[nodiscard]] Result<sys::FileIdentity> create_placeholder(const Placeholder& placeholder);
// Removes it only while it is the same inode and still empty; gone already is success, anything
// else Code::foreign.
[[nodiscard]] Status remove_placeholder(const Placeholder& placeholder, sys::FileIdentity identity);

}  // namespace sandbox::driver
