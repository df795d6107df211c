// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.hpp"

namespace sandbox::shim {

// Readiness events for one thread. Asio underneath; kept out of this header because it is slow to
// compile. Timers run on CLOCK_BOOTTIME: a suspended host does not stretch a deadline. Handlers run
// in run() only, one at a time; they may watch and forget anything, themselves included.
class Loop {
public:
    using Handler = std::function<void()>;
    using Token = std::uint64_t;

    Loop();
    ~Loop();
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

    // Calls `handler` each time `fd` is readable (or hung up) until `forget`. The descriptor stays
    // the caller's and must outlive the watch.
    [[nodiscard]] Result<Token> when_readable(int fd, Handler handler);
    // The same for room to write. Asio knows a descriptor once: for one that is also read, watch a
    // duplicate.
    [[nodiscard]] Result<Token> when_writable(int fd, Handler handler);
    // Once, at the earliest after `delay` (1 ms at least). Each call costs a timerfd.
    [[nodiscard]] Result<Token> after(std::chrono::milliseconds delay, Handler handler);
    // No handler of it runs any more, even if its event has already come. An unknown token is
    // ignored.
    void forget(Token token);

    // Returns after stop().
    void run();
    void stop();

private:
    struct State;
    enum class Wanted { reading, writing };
    [[nodiscard]] Result<Token> watch(int fd, Wanted wanted, Handler handler);
    std::unique_ptr<State> state_;
};

}  // namespace sandbox::shim
