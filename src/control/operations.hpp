// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "control/calls.hpp"
#include "control/perform.hpp"
#include "control/worker.hpp"

namespace sandbox::control {

// Runs `work` once per operation id (Idempotency-Key). Its answer is kept in STATE/operations, so
// that a client which never heard it, or asks a restarted daemon, is told the same. A try that was
// cut short is made again: verbs are safe to repeat, and `run` finds what it made by its name. The
// same id for another request, or while the first try is at work, is a conflict. Runs in a worker;
// blocks as long as `work` does. Without an id: just `work`.
void perform_once(const Call& call, const std::string& state_dir, const Work& work,
                  AnswerSink& sink);

}  // namespace sandbox::control
