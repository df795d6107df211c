// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "command_line.hpp"
#include "sys/fd.hpp"

// One command, from the call that starts it to the moment its exit status is known.
namespace sandbox::bench {

struct Command {
    std::vector<std::string> argv;  // argv[0] is an absolute path
    std::vector<std::string> env;
    int mount_namespace = -1;  // entered before the clock starts, left after it stops; -1: ours
};

enum class Clock { exit_status, first_byte };

struct Timed {
    std::uint64_t start_ns = 0;  // CLOCK_BOOTTIME
    std::uint64_t end_ns = 0;
    int status = -1;     // exit status, 128 + signal
    std::string output;  // first KiB of stdout and stderr together
};

// Runs it with an empty pipe as stdin and one pipe as stdout and stderr: a runtime that gives its
// streams to the container's root would change a /dev/null of the host's.
// Requires: single-threaded caller.
[[nodiscard]] Result<Timed> run_timed(const Command& command, Clock clock = Clock::exit_status);

// Children that the measured commands left to us (we are their subreaper): reaped when they end.
void reap_ended();
// Waits until none is left. Code::deadline_exceeded after 10 s.
[[nodiscard]] Status reap_all();

void pause_ms(int milliseconds);
// That long, and then until nothing but this process has wanted a CPU for a moment, where the
// options ask for that: at most 30 s.
void pause_between(const Options& options);

// Milliseconds of one thing, many times.
class Series {
public:
    void add(std::uint64_t nanoseconds)
    {
        values_.push_back(static_cast<double>(nanoseconds) / 1e6);
    }
    bool empty() const noexcept { return values_.empty(); }
    std::size_t size() const noexcept { return values_.size(); }
    double percentile(double fraction) const;  // nearest rank
    double p50() const { return percentile(0.50); }

private:
    std::vector<double> values_;
};

std::uint64_t now_ns();

}  // namespace sandbox::bench
