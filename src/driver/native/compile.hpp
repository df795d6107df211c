// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"
#include "confine/box_spec.hpp"
#include "driver/backend.hpp"
#include "driver/bootstrap.hpp"
#include "plan/plan.hpp"

// (plan, binding) -> the native launch spec: what confine will apply, as data. Pure.
namespace sandbox::driver::native {

// `digest` is that of document(): box, tree, bootstrap and service in canonical JSON.
struct NativeArtifact final : Artifact {
    confine::BoxSpec box;
    Service service;
};

// Fails when the plan holds what this driver does not express (a bug of the resolver: law 1).
[[nodiscard]] Result<NativeArtifact> compile(const plan::ExecutionPlan& plan,
                                             const Binding& binding);

// `plan --artifact`: the launch spec in canonical JSON, its digest beside it.
[[nodiscard]] Result<std::string> render(const NativeArtifact& artifact);

}  // namespace sandbox::driver::native
