// SPDX-License-Identifier: Apache-2.0
#include "base/result.hpp"

#include <cerrno>

namespace sandbox {

std::unexpected<Error> fail_errno(std::string_view syscall, std::string_view subject)
{
    return std::unexpected<Error>(Error::from_errno(errno, syscall, subject));
}

}  // namespace sandbox
