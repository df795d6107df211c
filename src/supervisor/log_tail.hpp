// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "sys/fd.hpp"

namespace sandbox::supervisor {

// The records of one log folder, from the oldest file on and through rotations, while they are
// written: the newest file is held open, so that what was written before a rotation is read before
// its successor. Owns its descriptors; not thread-safe.
class LogTail {
public:
    // A stored record without its newline. False: that is enough, nothing is read any more.
    using Take = std::function<bool(std::string_view line)>;

    explicit LogTail(sys::UniqueFd folder) noexcept : folder_(std::move(folder)) {}

    // Everything that came since the call before; the first one begins with the oldest file. A line
    // that is half written waits for its end.
    [[nodiscard]] Status read(const Take& take);
    bool has_enough() const noexcept { return enough_; }

private:
    std::uint32_t oldest() const;
    bool open(const std::string& name);
    bool is_newest() const;
    [[nodiscard]] Status read_file(const Take& take);
    void give(const Take& take);

    sys::UniqueFd folder_;
    sys::UniqueFd file_;
    std::string held_;  // of a line that is not whole yet
    bool started_ = false;
    bool enough_ = false;
};

// An inotify descriptor that is readable when a log folder got another record or file; set it before
// the first read.
[[nodiscard]] Result<sys::UniqueFd> watch_log(const std::string& folder);
// Empties it.
void drain_watch(int watch);

}  // namespace sandbox::supervisor
