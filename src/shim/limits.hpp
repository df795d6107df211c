// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "profile/types.hpp"
#include "shim/loop.hpp"
#include "shim/restart.hpp"
#include "sys/deadline.hpp"
#include "sys/fd.hpp"

namespace sandbox::shim {

// The clocks that end a sandbox from outside: ttl, idle_timeout. They run on CLOCK_BOOTTIME, so
// that time asleep counts. The loop must outlive this; `over` may destroy nothing of it.
class Clocks {
public:
    using Over = std::function<void(EndCause cause)>;  // ttl or idle; at most once

    // `ttl` is of the start that was asked for and older than this generation after a restart.
    // `busy` says whether somebody is at work in the sandbox right now.
    Clocks(Loop& loop, const profile::Lifecycle& lifecycle, sys::Deadline ttl,
           std::function<bool()> busy, Over over);
    ~Clocks();
    Clocks(const Clocks&) = delete;
    Clocks& operator=(const Clocks&) = delete;

    [[nodiscard]] Status start();
    // A session began or ended, or somebody said so: the idle time begins anew.
    void touch();
    // While paused nobody can be at work: the idle clock stands still. ttl runs on.
    void hold();
    void release();
    void stop();

private:
    [[nodiscard]] Status arm_idle(Millis span);
    void on_idle();

    Loop& loop_;
    std::optional<Millis> idle_;
    sys::Deadline ttl_;
    std::function<bool()> busy_;
    Over over_;
    std::optional<Loop::Token> ttl_watch_;
    std::optional<Loop::Token> idle_watch_;
    std::int64_t active_ns_ = 0;  // CLOCK_BOOTTIME of the latest activity
    bool held_ = false;
};

// Processes in a session's leaf, other than the service's and the health check's.
// Fails only where cgroups cannot be read.
[[nodiscard]] Result<bool> has_sessions(const std::string& cgroup);

// Tells when the kernel killed for want of memory in a workload, while it runs on. A notice may
// come late or not at all: the count at the end is what decides.
class OomWatch {
public:
    // `count` reads how many so far; `killed` is told of new ones.
    OomWatch(Loop& loop, std::function<std::uint64_t()> count,
             std::function<void(std::uint64_t more)> killed);
    ~OomWatch();
    OomWatch(const OomWatch&) = delete;
    OomWatch& operator=(const OomWatch&) = delete;

    // Without a memory controller there is nothing to watch, and that is success.
    [[nodiscard]] Status start(const std::string& cgroup);
    std::uint64_t told() const noexcept { return told_; }

private:
    void on_notice();
    void look(int rounds);

    Loop& loop_;
    std::function<std::uint64_t()> count_;
    std::function<void(std::uint64_t)> killed_;
    sys::UniqueFd notice_;   // v1: eventfd; v2: inotify
    sys::UniqueFd control_;  // v1: keeps memory.oom_control open
    std::optional<Loop::Token> watch_;
    std::optional<Loop::Token> timer_;
    std::uint64_t told_ = 0;
};

}  // namespace sandbox::shim
