// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "resolve/draft.hpp"

namespace sandbox::resolve {

// What the native driver needs of the host beyond namespaces, filters and cgroups, which every
// sandbox on the host's kernel needs: nobody else's program, only our own two.
void require_native(Draft& draft);

}  // namespace sandbox::resolve
