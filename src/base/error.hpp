// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sandbox {

// Closed set of failure kinds. A caller may branch on the code; people read the message.
enum class Code {
    invalid_argument,    // the caller asked for something that can never work
    not_found,           // the named thing does not exist
    already_exists,      // the name is taken
    permission_denied,   // the kernel or a policy said no
    unavailable,         // a facility this host lacks
    resource_exhausted,  // memory, descriptors, disk, pids, a ceiling of ours
    deadline_exceeded,   // an awaited event did not come in time
    corrupt,             // stored or received bytes do not decode
    conflict,            // somebody else holds or changed it
    foreign,             // it exists but is not ours: left alone
    denied,              // the resolver refused; the denials say why
    io,                  // a system call failed in a way not named above
    internal,            // a bug of ours
};

std::string_view to_string(Code code) noexcept;

// One error type for the whole project: what failed, on what, and the way up.
// `syscall` is empty when no system call is to blame; `errnum` is then 0.
class Error {
public:
    Error(Code code, std::string message) : code_(code), message_(std::move(message)) {}

    // Requires: errnum is an errno value. The code is derived from it.
    static Error from_errno(int errnum, std::string_view syscall, std::string_view subject);

    Code code() const noexcept { return code_; }
    int errnum() const noexcept { return errnum_; }
    const std::string& syscall() const noexcept { return syscall_; }
    const std::string& subject() const noexcept { return subject_; }

    // Adds one frame of context, innermost first.
    Error&& with(std::string context) &&;
    Error& with(std::string context) &;

    // "start sandbox web: open /x: No such file or directory"
    std::string message() const;

private:
    Code code_;
    int errnum_ = 0;
    std::string message_;
    std::string syscall_;
    std::string subject_;
    std::vector<std::string> context_;
};

}  // namespace sandbox
