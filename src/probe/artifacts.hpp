// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "probe/child.hpp"
#include "probe/identity.hpp"
#include "probe/probe.hpp"
#include "sys/fd.hpp"

// Steps of looking at an artifact, for the checks (in their children). Nothing is kept open beyond
// the child.
namespace sandbox::probe {

struct OpenArtifact {
    sys::UniqueFd executable;  // a crun is a sealed memfd, others the file itself
    std::string digest;
};
// What is opened is what is hashed, and for crun also what is executed. denied kinds and owners:
// sys::check_executable.
[[nodiscard]] Result<OpenArtifact> open_artifact(Tool tool, const std::string& path);

// Runs `--version`: to be called in a disposable child.
[[nodiscard]] Result<std::string> ask_version(Tool tool, int executable);

// Ok when nothing is pinned or the digest is the pinned one; else a gap that names both.
Finding pin_problem(const ArtifactSetting& setting, std::string_view digest);

}  // namespace sandbox::probe
