// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "base/result.hpp"
#include "control/calls.hpp"
#include "supervisor/embedded.hpp"
#include "supervisor/paths.hpp"

namespace sandbox::control {

// Where the answer of one call goes.
// Implemented by workers, recorders and tests; called from one thread.
class AnswerSink {
public:
    virtual ~AnswerSink() = default;
    // Once, first. `whole` answers have one body; others are lines, as many as come.
    enum class Form { whole, lines };
    virtual void begin(int status, std::string_view type, Form form) = 0;
    // False: nobody reads any more.
    virtual bool body(std::string_view bytes) = 0;
};

inline constexpr std::string_view kJsonType = "application/json";
inline constexpr std::string_view kLinesType = "application/x-ndjson";
inline constexpr std::string_view kMetricsType = "text/plain; version=0.0.4";

// Opens the service a call needs: config and policy are read anew for each one.
using OpenService =
    std::function<Result<std::unique_ptr<supervisor::SandboxService>>(supervisor::Need need)>;

// Does what one request asks and answers it, blocking as long as that takes. The call's console
// holds the descriptors of a stream. Every failure becomes an answer.
void perform(const Call& call, const supervisor::Paths& paths, const OpenService& open,
             AnswerSink& sink);

// What a call that was refused before it began is answered with.
void answer_fault(const CallFault& fault, AnswerSink& sink);

}  // namespace sandbox::control
