// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/result.hpp"
#include "sys/fd.hpp"

namespace sandbox::shim {

// Both sides of one terminal. The slave is the sandbox's: its name inside is /dev/pts/N.
struct Terminal {
    sys::UniqueFd master;  // non-blocking
    sys::UniqueFd slave;
};

struct Window {
    std::uint16_t rows = 0;
    std::uint16_t cols = 0;
};

// The devpts instance of one sandbox, held by descriptor. Terminals made here are of that instance
// and of no other: nothing of the host's /dev/pts is ever in reach. The descriptor keeps the
// instance alive, not the sandbox.
class Devpts {
public:
    // `init_pid` is PID 1 of the sandbox. Code::conflict when what lies at its /dev/pts is no
    // devpts, or is the host's.
    [[nodiscard]] static Result<Devpts> of(int init_pid);

    // `uid` and `gid` are the user's on the host: the slave is made theirs, mode 0600.
    [[nodiscard]] Result<Terminal> open(uid_t uid, gid_t gid, Window window) const;

private:
    explicit Devpts(sys::UniqueFd folder) : folder_(std::move(folder)) {}
    sys::UniqueFd folder_;  // O_PATH
};

// The host's half of a terminal that a guest makes: a stream socket in place of the slave, which goes
// with OPEN as all three descriptors (docs/protocol.md, "The relay"). Its size goes by RESIZE.
[[nodiscard]] Result<Terminal> make_remote_terminal();

// The foreground group of the terminal hears SIGWINCH of it.
[[nodiscard]] Status resize(int master, Window window);

}  // namespace sandbox::shim
