// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace sandbox::shim {

enum class Stream { out, err, supervisor };
std::string_view to_string(Stream stream) noexcept;  // "stdout", "stderr", "supervisor"

// One line of a log file. `log` holds no newline; `partial` says that none followed.
// `offset` is the position of its first byte in the stream.
struct LogRecord {
    std::string time;  // RFC 3339, UTC, nanoseconds
    Stream stream = Stream::out;
    std::uint64_t offset = 0;
    std::string log;
    bool partial = false;
    // Supervisor stream only: bytes lost before here, to the size cap or with a killed log worker.
    std::uint64_t dropped = 0;
    bool operator==(const LogRecord&) const = default;
};

// A longer line is stored as several partial records. Bounds what a stream without newlines can
// make us hold.
inline constexpr std::size_t kLongestRecord = 16U << 10;

// One JSON line, newline included. Bytes that are not UTF-8 travel as base64 in "log_b64".
// decode: Code::corrupt for everything that is no record.
std::string encode(const LogRecord& record);
[[nodiscard]] Result<LogRecord> decode(std::string_view line);

// Cuts a stream into records. `time` of a record is that of the chunk that completed it.
class LineSplitter {
public:
    // `offset`: of the first byte that will be fed.
    explicit LineSplitter(Stream stream, std::uint64_t offset = 0)
        : stream_(stream), offset_(offset)
    {
    }

    // Bytes of a line that has not ended.
    std::size_t held() const noexcept { return line_.size(); }

    // Calls emit(LogRecord&&) for each whole line or full-length piece.
    template <class Emit>
    void feed(std::string_view chunk, const std::string& time, Emit&& emit)
    {
        while (!chunk.empty()) {
            // At most one record's worth is held, whatever comes.
            const std::size_t room = kLongestRecord - line_.size();
            // One byte beyond the room: a line of exactly the longest length still ends with its
            // newline.
            const std::size_t newline = chunk.substr(0, room + 1).find('\n');
            if (newline != std::string_view::npos) {
                line_ += chunk.substr(0, newline);
                chunk.remove_prefix(newline + 1);
                emit(take(time, false));
                continue;
            }
            const std::size_t part = chunk.size() < room ? chunk.size() : room;
            line_ += chunk.substr(0, part);
            chunk.remove_prefix(part);
            if (line_.size() == kLongestRecord && !chunk.empty()) emit(take(time, true));
        }
    }

    // The last line where no newline ended it.
    std::optional<LogRecord> finish(const std::string& time)
    {
        if (line_.empty()) return std::nullopt;
        return take(time, true);
    }

private:
    LogRecord take(const std::string& time, bool partial);

    Stream stream_;
    std::uint64_t offset_;
    std::string line_;
};

}  // namespace sandbox::shim
