// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/result.hpp"
#include "driver/backend.hpp"
#include "driver/bootstrap.hpp"
#include "plan/plan.hpp"

// (plan, binding) -> everything the launcher will do, as data. Pure.
//
// The file tree is ours, not crun's: the launcher builds it in its own mount namespace from
// `steps`. crun gets a ready root and adds what needs the new namespaces: /proc, /dev and below.
namespace sandbox::driver::oci {

// `digest` is that of config.json.
struct OciArtifact final : Artifact {
    std::string config_json;  // canonical bytes, written and hashed as they are
    Service service;
    bool operator==(const OciArtifact&) const = default;
};

// Fails when the plan holds what this driver does not express (a bug of the resolver: law 11).
[[nodiscard]] Result<OciArtifact> compile(const plan::ExecutionPlan& plan, const Binding& binding);

// `plan --artifact`: one JSON object (config, steps, bootstrap in hex, cgroup settings).
[[nodiscard]] Result<std::string> render(const OciArtifact& artifact);

}  // namespace sandbox::driver::oci
