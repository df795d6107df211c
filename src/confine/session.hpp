// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "confine/spec.hpp"
#include "sys/fd.hpp"
#include "sys/procfs.hpp"

namespace sandbox::confine {

// In the order in which they are applied.
enum class Step {
    none,
    join_cgroup,
    new_session,
    rlimits,
    umask,
    bounding_set,  // before the ids change: dropping needs CAP_SETPCAP
    groups,
    gid,
    uid,
    capabilities,
    ambient_set,
    cwd,
    no_new_privs,
    landlock,
    seccomp
};
std::string_view to_string(Step step) noexcept;

struct Outcome {
    Step failed = Step::none;  // none: everything is in force
    int errnum = 0;
    const char* detail = nullptr;  // points into the spec: the Landlock path, the cwd
    bool ok() const noexcept { return failed == Step::none; }
};

// Turns an outcome into an Error a person understands. Requires: !outcome.ok().
Error to_error(const Outcome& outcome);

// PRIVILEGED: irreversible. Requires: a forked, single-threaded child about to exec. Allocates
// nothing. On failure the caller must _exit: what was applied stays.
Outcome apply(const Spec& spec) noexcept;

// What /proc/self says after apply().
struct SelfReport {
    sys::ProcStatus status;
    std::vector<int> open_fds;  // sorted, without the witness' own
};

// Opened before apply(): Landlock may forbid opening /proc afterwards, not reading what is open.
// The two descriptors are CLOEXEC.
class SelfWitness {
public:
    [[nodiscard]] static Result<SelfWitness> open();
    [[nodiscard]] Result<SelfReport> read() const;

private:
    SelfWitness(sys::UniqueFd status, sys::UniqueFd fds)
        : status_(std::move(status)), fds_(std::move(fds))
    {
    }
    sys::UniqueFd status_;
    sys::UniqueFd fds_;
};

// Differences between what the spec asked and what is in force, one text each; empty: all is well.
std::vector<std::string> differences(const Spec& spec, const SelfReport& report,
                                     int filters_expected);

}  // namespace sandbox::confine
