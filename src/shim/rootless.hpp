// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.hpp"

// An ordinary user's shim. It keeps its process, but leaves for a user and a mount namespace of its
// own in which it is root: 0 is the user, the ids of /etc/subuid keep their numbers, and nobody else
// is there. What a launch needs root for it then does there. Programs that were asked of the user's
// rights (cgroups, state, sockets) still are: outside it is the user, no more.
namespace sandbox::shim {

// Not root, so a namespace is needed. False again in the program that enter_user_namespace() started.
bool is_ordinary_user() noexcept;

// Executes this program again in the new namespaces, with the same arguments, environment and
// descriptors; returns only on failure. Executing matters: what /proc says of a process belongs to the
// user namespace in which its program was started, and only its root may write id maps there.
// Requires: single-threaded, before anything was made.
[[nodiscard]] Status enter_user_namespace(char** argv);

}  // namespace sandbox::shim
