// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "canon/json.hpp"
#include "driver/bootstrap.hpp"
#include "driver/tree.hpp"

// How the shared parts of artifacts look in `plan --artifact`. Pure; private to the drivers.
namespace sandbox::driver {

canon::Json tree_json(std::span<const TreeStep> steps);
// {"version","controllers","workload","control"}
canon::Json cgroup_json(const Service& service);
// {"argv","cwd","umask","terminal","timeout_ms"}
canon::Json service_json(const Service& service);
canon::Json hex_json(std::string_view bytes);

}  // namespace sandbox::driver
