// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "control/server.hpp"
#include "sys/fd.hpp"

namespace sandbox::daemon {

// syslog(3) priorities: LOG_ERR to LOG_INFO.
inline constexpr int kError = 3;
inline constexpr int kWarning = 4;
inline constexpr int kNotice = 5;
inline constexpr int kInfo = 6;

// One line a message: to journald with fields of their own when standard error is the journal's
// (JOURNAL_STREAM, systemd.exec(5)), else "<priority>message FIELD=value …" on standard error, of
// which journald and syslog read the same.
class Log {
public:
    // Looks once: what standard error is does not change.
    Log();
    // Escapes message and values: texts of clients and sandboxes are among them. Field names are
    // ours. Never fails, never throws a message away without trying both ways.
    void write(int priority, std::string_view message,
               std::span<const control::LogField> fields = {}) const;

private:
    sys::UniqueFd journal_;
};

}  // namespace sandbox::daemon
