// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"

#include <cerrno>
#include <cstring>

namespace sandbox {

namespace {

Code code_of(int errnum)
{
    switch (errnum) {
    case ENOENT:
    case ESRCH:
    case ENXIO: return Code::not_found;
    case EEXIST: return Code::already_exists;
    case EPERM:
    case EACCES:
    case EROFS: return Code::permission_denied;
    case ENOSYS:
    case EOPNOTSUPP:
    case ENODEV: return Code::unavailable;
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case EAGAIN: return Code::resource_exhausted;
    case ETIMEDOUT: return Code::deadline_exceeded;
    case EBUSY: return Code::conflict;
    case EINVAL:
    case ENAMETOOLONG:
    case ELOOP: return Code::invalid_argument;
    default: return Code::io;
    }
}

}  // namespace

std::string_view to_string(Code code) noexcept
{
    switch (code) {
    case Code::invalid_argument: return "invalid_argument";
    case Code::not_found: return "not_found";
    case Code::already_exists: return "already_exists";
    case Code::permission_denied: return "permission_denied";
    case Code::unavailable: return "unavailable";
    case Code::resource_exhausted: return "resource_exhausted";
    case Code::deadline_exceeded: return "deadline_exceeded";
    case Code::corrupt: return "corrupt";
    case Code::conflict: return "conflict";
    case Code::foreign: return "foreign";
    case Code::denied: return "denied";
    case Code::io: return "io";
    case Code::internal: return "internal";
    }
    return "internal";
}

Error Error::from_errno(int errnum, std::string_view syscall, std::string_view subject)
{
    Error error(code_of(errnum), strerror(errnum));
    error.errnum_ = errnum;
    error.syscall_ = syscall;
    error.subject_ = subject;
    return error;
}

Error&& Error::with(std::string context) &&
{
    context_.push_back(std::move(context));
    return std::move(*this);
}

Error& Error::with(std::string context) &
{
    context_.push_back(std::move(context));
    return *this;
}

std::string Error::message() const
{
    std::string text;
    for (auto frame = context_.rbegin(); frame != context_.rend(); ++frame) {
        text += *frame;
        text += ": ";
    }
    if (!syscall_.empty()) {
        text += syscall_;
        if (!subject_.empty()) text += " " + subject_;
        text += ": ";
    }
    return text + message_;
}

}  // namespace sandbox
