// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <expected>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace sandbox {

// What every fallible function returns. GCC 12's std::expected gives no warning when ignored:
// mark each function [[nodiscard]].
template <class T>
using Result = std::expected<T, Error>;

using Status = Result<void>;

inline std::unexpected<Error> fail(Error error)
{
    return std::unexpected<Error>(std::move(error));
}

inline std::unexpected<Error> fail(Code code, std::string message)
{
    return std::unexpected<Error>(Error(code, std::move(message)));
}

// Requires: called before anything can change errno.
std::unexpected<Error> fail_errno(std::string_view syscall, std::string_view subject = {});

}  // namespace sandbox

// Unwraps a Result or returns its error from the enclosing function.
//   auto fd = TRY(open_dir(path));
#define TRY(expr)                                                         \
    __extension__({                                                       \
        auto try_result_ = (expr);                                        \
        if (!try_result_) return std::unexpected(std::move(try_result_).error()); \
        *std::move(try_result_);                                          \
    })

// The same for a Result<void>.
#define TRY_VOID(expr)                                                    \
    do {                                                                  \
        auto try_status_ = (expr);                                        \
        if (!try_status_) return std::unexpected(std::move(try_status_).error()); \
    } while (false)

// As TRY, adding a frame of context to the error.
#define TRY_WITH(expr, context)                                           \
    __extension__({                                                       \
        auto try_result_ = (expr);                                        \
        if (!try_result_)                                                 \
            return std::unexpected(std::move(std::move(try_result_).error()).with(context)); \
        *std::move(try_result_);                                          \
    })
