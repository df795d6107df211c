// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "control/calls.hpp"
#include "control/perform.hpp"
#include "sys/fd.hpp"
#include "sys/process.hpp"

// A call runs in a process of its own, forked for it: the library it calls may block, and makes
// processes itself, which only a process of one thread may do. Its crash, or killing it when its
// client has gone, harms no other call and is what the ledger's recovery is made for.
namespace sandbox::control {

// The daemon's ends. Frames on the channel: head and body to the daemon, steering to the worker.
struct Worker {
    sys::Pidfd process;
    sys::UniqueFd channel;
    sys::UniqueFd in;   // streams only: write end of its standard input
    sys::UniqueFd out;  // streams only: read ends
    sys::UniqueFd err;
};

using Work = std::function<void(const Call& call, AnswerSink& sink)>;

// Requires: the caller has one thread. A long-lasting call ends with the daemon (PR_SET_PDEATHSIG,
// prctl(2)), a quick one by itself; what either launched goes on. The caller reaps the process.
// Errors: those of fork and socketpair; nothing runs then.
[[nodiscard]] Result<Worker> start_worker(const Call& call, const Work& work);

// Any other task of the daemon that may block; `task` writes what it likes to the channel and
// returns when that is closed.
[[nodiscard]] Result<Worker> start_task(const std::function<void(int channel)>& task);

// What a worker's answer begins with, as a head frame's payload. Between two processes of one
// release: strict.
struct Head {
    int status = 500;
    std::string type;
    AnswerSink::Form form = AnswerSink::Form::whole;
};
std::string encode(const Head& head);
[[nodiscard]] Result<Head> decode_head(std::string_view payload);

}  // namespace sandbox::control
