// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../guest/peer.hpp"
#include "driver/backend.hpp"
#include "driver/evidence.hpp"
#include "driver/placeholder.hpp"
#include "fixture.hpp"

namespace sandbox::driver::test {

using guest::test::Peer;
using guest::test::Ran;

// A folder below /tmp that goes with the object.
class ScratchDir {
public:
    ScratchDir();
    ~ScratchDir();
    ScratchDir(const ScratchDir&) = delete;
    ScratchDir& operator=(const ScratchDir&) = delete;
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

// crun and sandbox-init of this machine; the digests are those of `artifacts`.
Result<SealedPrograms> sealed_programs(const std::map<std::string, std::string>& artifacts);

// A real sandbox of the plan's driver: sandbox-init, cgroups of its own below /sandbox-test-PID. Gone with the
// object.
class LiveSandbox {
public:
    // `content` gets the digests of the programs on this machine.
    explicit LiveSandbox(plan::PlanContent content);
    ~LiveSandbox();
    LiveSandbox(const LiveSandbox&) = delete;
    LiveSandbox& operator=(const LiveSandbox&) = delete;

    // Cgroups, placeholders, launch, port 5000. The error's text, or empty.
    std::string start();
    std::unique_ptr<Peer> session(const std::string& name);
    // What an exec session of `script` wrote; GO after the evidence was looked at.
    Ran shell(const std::string& name, const std::string& script);
    // Closes the channel, ends and removes all. The error's text, or empty.
    std::string stop();
    std::vector<std::string> cgroup_folders() const;

    ScratchDir scratch;
    Binding binding;
    std::optional<plan::ExecutionPlan> plan;
    ArtifactPtr artifact;
    std::optional<Launched> launched;
    std::vector<std::pair<Placeholder, sys::FileIdentity>> placeholders;
    std::unique_ptr<Peer> control;
    std::vector<Evidence> session_evidence;  // of the last shell()
};

}  // namespace sandbox::driver::test
