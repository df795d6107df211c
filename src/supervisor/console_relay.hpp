// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <string>

#include "base/terminal.hpp"

namespace sandbox::supervisor {

// One direction between a descriptor of the caller and a pipe of ours: bytes pass at the pace of
// the slower side, without being copied where the kernel can do so. Both descriptors are borrowed.
// Requires: SIGPIPE is ignored, so that a reader that goes away is an error here and not our end.
// Not thread-safe; never blocks as long as its descriptors' POLLOUT can be believed.
class Relay {
public:
    Relay(int from, int to);

    // What to wait for; fd -1 once it is over.
    pollfd wait() const;
    // Moves what can be moved. Call when wait() has something, whatever it is.
    void step();
    // The source came to its end, or the sink takes no more.
    bool is_over() const { return need_ == Need::nothing; }
    // Waits for its source: everything that came was passed on.
    bool is_dry() const { return need_ != Need::sink; }

private:
    enum class Need { source, sink, nothing };
    enum class Sink { pipe, socket, terminal, other };
    bool splice_once();
    void copy_once();
    bool write_held();
    void blocked();

    int from_;
    int to_;
    bool from_pipe_ = false;
    Sink sink_ = Sink::other;
    bool splicing_ = true;
    Need need_ = Need::source;
    TerminalSanitiser safe_;  // where a terminal reads it
    std::string held_;  // read and not yet written, where splicing is not possible
};

}  // namespace sandbox::supervisor
