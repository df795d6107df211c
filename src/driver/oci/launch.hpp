// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.hpp"
#include "driver/backend.hpp"
#include "driver/oci/compile.hpp"
#include "plan/plan.hpp"

// The effects behind an OciArtifact. Single-threaded callers only: it forks. The caller must be a
// child subreaper (PR_SET_CHILD_SUBREAPER): PID 1 becomes its child when crun exits.
namespace sandbox::driver::oci {

inline constexpr std::string_view kRuntimeProgram = "oci.runtime";  // crun
inline constexpr std::string_view kInitProgram = "sandbox-init";

// Makes the tree in a mount namespace of its own, starts crun there and waits for PID 1's
// INIT_UP. Requires: make_groups() and the placeholders done. On failure everything in the
// sandbox's cgroups has been killed and reaped; the error carries crun's own words, escaped and
// bounded. Launched::helpers holds crun unless it has ended well already.
[[nodiscard]] Result<Launched> launch(const plan::ExecutionPlan& plan, const Binding& binding,
                                      const OciArtifact& artifact, const SealedPrograms& programs,
                                      const LaunchOptions& options = {});

const Backend& backend() noexcept;

}  // namespace sandbox::driver::oci
