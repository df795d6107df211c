// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "sys/fd.hpp"
#include "wire/machine.hpp"

namespace sandbox::guest {

// The guest's own cgroup v2: every session is born in a leaf of the workload, which has the limits;
// PID 1 has a group of its own, where it has limits. So a memory hog never takes PID 1 with it.
class MachineGroups {
public:
    // Sets the limits and reads them back; a kernel that will not have one is an error (conflict:
    // another value is in force). Once.
    [[nodiscard]] static Result<MachineGroups> make(const wire::Machine& machine);

    // A leaf for this session, open as a folder; invalid when there is none to be had. The caller
    // owns the descriptor.
    sys::UniqueFd make_leaf(const std::string& session);
    // Kills what the session left behind. Never waits; the folder goes when it is empty.
    void retire(const std::string& session);
    // In all sessions so far. 0 also when it cannot be read.
    std::uint64_t oom_kills() const;
    // Readable with POLLPRI when that may have changed since oom_kills() was last asked.
    int memory_events() const noexcept { return events_.get(); }
    // What is in force: name and value, as read back.
    const std::vector<std::pair<std::string, std::string>>& report() const { return report_; }

private:
    explicit MachineGroups(sys::UniqueFd workload) : workload_(std::move(workload)) {}
    void sweep();

    sys::UniqueFd workload_;
    sys::UniqueFd events_;  // the workload's memory.events
    std::multimap<std::string, std::string> leaves_;  // by session; of one name the oldest first
    std::vector<std::string> dying_;  // killed, not empty yet
    std::uint32_t next_ = 1;
    std::vector<std::pair<std::string, std::string>> report_;
};

}  // namespace sandbox::guest
