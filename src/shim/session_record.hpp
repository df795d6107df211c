// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "shim/log_worker.hpp"
#include "shim/sessions.hpp"

namespace sandbox::shim {

// One session of a running generation. Shared: a handler may end the one it is called for.
struct Sessions::Session {
    std::uint32_t number = 0;
    std::string name;
    std::optional<std::uint32_t> slot;  // of its leaf, while there is one
    bool from_door = false;
    bool terminal = false;
    std::vector<std::string> argv;  // shortened; of one from the door nothing is known
    std::string program;
    std::uint32_t uid = 0;
    std::uint32_t inner_pid = 0;
    std::string started;

    std::unique_ptr<SessionStream> stream;  // to sandbox-init; none for one from the door
    std::optional<Loop::Token> stream_watch;
    std::unique_ptr<TerminalRelay> relay;
    std::optional<LogWorker> log;
    std::uint64_t log_entry = 0;  // in the ledger
    std::optional<Loop::Token> log_watch;
    std::string logs;
    std::vector<sys::UniqueFd> waiters;  // attached, without a terminal: EXIT when it is over

    Answer answer;  // until it runs or does not
    bool attach_at_start = false;
    std::optional<wire::Exit> exit;
    std::optional<ledger::Exit> result;
    std::uint64_t oom_kills = 0;
    std::uint64_t guest_kills_before = 0;  // told by the guest when it began
    bool settled = false;  // its end was told and written down
};

}  // namespace sandbox::shim
