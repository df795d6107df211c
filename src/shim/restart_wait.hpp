// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "shim/control_protocol.hpp"
#include "shim/loop.hpp"
#include "shim/restart.hpp"
#include "sys/deadline.hpp"
#include "sys/fd.hpp"

namespace sandbox::shim {

// The pause between two generations: nothing runs, and clients are answered all the same. Blocks in
// wait() until it is over; one thread.
class RestartWait {
public:
    // `listener` is shim.sock, which stays the caller's. `last` is what clients that wait are told.
    RestartWait(int listener, std::string id, ledger::Exit last);
    ~RestartWait();
    RestartWait(const RestartWait&) = delete;
    RestartWait& operator=(const RestartWait&) = delete;

    // Nothing: the next generation is due. Else why there is none: `asked` or `ttl`.
    [[nodiscard]] Result<std::optional<EndCause>> wait(sys::Deadline due, sys::Deadline ttl);

private:
    struct Client {
        sys::UniqueFd socket;
        Loop::Token watch = 0;
    };

    void accept_client();
    void on_client(std::uint64_t number);
    Reply serve(const Request& request);
    void end(std::optional<EndCause> why);

    int listener_;
    std::string id_;
    ledger::Exit last_;
    Loop loop_;
    std::map<std::uint64_t, std::shared_ptr<Client>> clients_;
    std::uint64_t next_number_ = 1;
    std::optional<EndCause> why_;
    bool over_ = false;
};

// Signals by which a person means the end: after them no policy starts the workload again.
bool means_the_end(int signal) noexcept;

}  // namespace sandbox::shim
