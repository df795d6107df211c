// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.hpp"
#include "supervisor/service.hpp"

namespace sandbox::supervisor {

// The stored records of one sandbox, oldest file first, each as it lies in the file without its
// newline. With follow, waits for more until its log worker has written the last one.
[[nodiscard]] Status read_logs(const Listed& listed, const LogQuery& query, const LogSink& sink);

}  // namespace sandbox::supervisor
