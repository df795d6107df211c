// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "base/result.hpp"
#include "sys/process.hpp"

// What an ordinary user's sandbox does is read from where its shim is: of the processes inside, /proc
// shows descriptors and the like only to who has rights over their ids.
namespace sandbox::supervisor {

// Runs `look` in a child that is root of the user namespace of `shim`, and gives its outcome. Numbers
// of users and groups are there those of the binding. Requires: we made that namespace (or are root);
// `look` only reads. Blocks as long as it takes, at most ten seconds.
[[nodiscard]] Status in_namespace_of(const sys::ProcessIdentity& shim,
                                     const std::function<Status()>& look);

}  // namespace sandbox::supervisor
