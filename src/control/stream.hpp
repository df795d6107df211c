// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "control/frames.hpp"
#include "control/loop.hpp"
#include "control/worker.hpp"

namespace sandbox::control {

// An upgraded connection: frames of the client on one side, pipes of a worker on the other. What
// one side does not take is not read from the other: standard input by credit, output because no
// more is read while the client has some to take. One thread, the loop's; the loop must outlive it.
// Nothing here blocks.
class Stream {
public:
    // `end` is called once from the loop: the answer's status and body, or status 0 when the
    // client went away first. Destroying the stream before that ends its worker.
    using End = std::function<void(int status, const std::string& body)>;
    [[nodiscard]] static Result<std::unique_ptr<Stream>> start(Loop& loop,
                                                               std::unique_ptr<Loop::Watch> client,
                                                               std::string received, Worker worker,
                                                               End end);
    ~Stream();

    // Requires: not yet called. The worker, to be reaped.
    sys::Pidfd take_process();

private:
    struct State;
    explicit Stream(std::shared_ptr<State> state);
    std::shared_ptr<State> state_;
};

}  // namespace sandbox::control
