// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.hpp"

// What a tree in a guest has of its own kernel, as crun gives it to a container.
namespace sandbox::guest {

// Over `root`/dev: a tmpfs with the usual nodes and links, /dev/pts, /dev/shm and /dev/mqueue.
[[nodiscard]] Status mount_devices(int root);
// Over `root`/proc.
[[nodiscard]] Status mount_proc(int root);

}  // namespace sandbox::guest
