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

inline std::unexpected<Error> fail(Error error) { return std::unexpected<Error>(std::move(error)); }

inline std::unexpected<Error> fail(Code code, std::string message)
{
    return std::unexpected<Error>(Error(code, std::move(message)));
}

// Requires: called before anything can change errno.
std::unexpected<Error> fail_errno(std::string_view syscall, std::string_view subject = {});

}  // namespace sandbox

#define SANDBOX_JOIN2(a, b) a##b
#define SANDBOX_JOIN(a, b) SANDBOX_JOIN2(a, b)

#define SANDBOX_TRY(name, expr, error)                       \
    __extension__({                                          \
        auto name = (expr);                                  \
        if (!name) return std::unexpected(std::move(error)); \
        *std::move(name);                                    \
    })
#define SANDBOX_TRY_NAMED(name, expr) SANDBOX_TRY(name, expr, name.error())
#define SANDBOX_TRY_WITH_NAMED(name, expr, context) \
    SANDBOX_TRY(name, expr, std::move(name.error()).with(context))

// Unwraps a Result or returns its error from the enclosing function.
//   auto fd = TRY(open_dir(path));
#define TRY(expr) SANDBOX_TRY_NAMED(SANDBOX_JOIN(try_result_, __COUNTER__), expr)

// As TRY, adding a frame of context to the error.
#define TRY_WITH(expr, context) \
    SANDBOX_TRY_WITH_NAMED(SANDBOX_JOIN(try_result_, __COUNTER__), expr, context)

// TRY for a Result<void>.
#define TRY_VOID(expr) SANDBOX_TRY_VOID(SANDBOX_JOIN(try_status_, __COUNTER__), expr)
#define SANDBOX_TRY_VOID(name, expr)                                \
    do {                                                            \
        auto name = (expr);                                         \
        if (!name) return std::unexpected(std::move(name).error()); \
    } while (false)
