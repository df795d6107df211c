// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "shim/log_record.hpp"
#include "shim/request.hpp"
#include "sys/fd.hpp"

namespace sandbox::shim {

inline constexpr const char* kLogName = "log.jsonl";  // then log.jsonl.1 (older), .2, …

// Bounded, rotated files in one folder, written by one process at a time. The oldest file goes when
// the limit is reached; the next one then starts with a supervisor record that says how many bytes
// of records were dropped. Nothing is synced: a host that goes down may lose the last lines.
class LogWriter {
public:
    // `dir` is made when missing. Appends to what is there.
    [[nodiscard]] static Result<LogWriter> open(const std::string& dir, LogLimits limits);

    // Code::resource_exhausted when the disk is full: the record is lost and counted; the next
    // one that fits is preceded by a marker.
    [[nodiscard]] Status append(const LogRecord& record);

private:
    LogWriter(sys::UniqueFd dir, sys::UniqueFd file, std::uint64_t size, LogLimits limits);
    [[nodiscard]] Status rotate();
    [[nodiscard]] Status shift_files();
    [[nodiscard]] Status write_marker(const std::string& time);
    [[nodiscard]] Status write_line(const std::string& line);

    sys::UniqueFd dir_;
    sys::UniqueFd file_;
    std::uint64_t size_ = 0;
    LogLimits limits_;
    std::uint64_t dropped_ = 0;  // not yet marked
};

}  // namespace sandbox::shim
