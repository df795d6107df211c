// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "sys/fd.hpp"

namespace sandbox::supervisor {

// Our standard input into the workload's pipe, at the workload's pace. The caller polls input()
// for reading and output() for writing; both are -1 when there is nothing to wait for.
class StdinPump {
public:
    // An invalid descriptor: nothing is read, nothing passed on. A valid one makes this process
    // ignore SIGPIPE.
    explicit StdinPump(sys::UniqueFd pipe);

    int input() const noexcept;
    int output() const noexcept;
    // Call only after poll(2) said that input() or output() is ready.
    void read_more();
    void write_more();

private:
    sys::UniqueFd pipe_;
    std::string held_;
    bool at_end_ = false;
};

}  // namespace sandbox::supervisor
