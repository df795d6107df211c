// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "confine/spec.hpp"
#include "guest/copy.hpp"
#include "sys/fd.hpp"
#include "wire/init.hpp"

namespace sandbox::guest {

// What execve will be given, laid out before the fork.
struct Program {
    std::vector<std::string> argv;
    std::vector<std::string> env;         // NAME=VALUE
    std::vector<std::string> candidates;  // argv[0] itself, or PATH times argv[0]
    std::vector<char*> secrets;           // more of env, borrowed from locked memory
    std::optional<CopyJob> copy;          // instead of all these
};
// Pure. PATH is searched at the exec, by trying: what exists now may be gone then.
Program make_program(const wire::Open& open, const wire::Bootstrap& boot);

// The confinement of one session. WireError::refused (as Failure) names what the plan's limits
// forbid: ids, groups, limits above those of the record, a terminal. Pure.
[[nodiscard]] wire::Decoded<confine::Spec> make_spec(const wire::Open& open,
                                                     const wire::Bootstrap& boot);

struct Stdio {
    sys::UniqueFd in;
    sys::UniqueFd out;
    sys::UniqueFd err;
};

// The child talks on `report`, a SEQPACKET socket: one packet kReport with its encoded CONFINED
// frame, then it waits for one byte; then end of stream means that execve went through, a packet
// kFailure that it did not.
inline constexpr char kReport = 'C';
inline constexpr char kFailure = 'F';
struct FailurePacket {
    char tag = kFailure;
    int errnum = 0;
    char step[24] = {};  // confine::to_string, or "exec"
};

struct Child {
    pid_t pid = -1;
    sys::UniqueFd report;  // non-blocking
};

// Forks one session child (into `leaf` and `user_namespace` where there is one). Everything the
// child must not keep is closed on its side before it reports. Blocks for the fork only. Errors:
// those of socketpair and clone3; nothing runs then. The caller reaps the child, and owns `stdio`
// and `leaf` as before.
[[nodiscard]] Result<Child> spawn(const Program& program, confine::Spec spec, const Stdio& stdio,
                                  wire::LeafKind kind, const std::vector<sys::UniqueFd>& leaf,
                                  std::uint32_t landlock_abi, int user_namespace = -1);

}  // namespace sandbox::guest
