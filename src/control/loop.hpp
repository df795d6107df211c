// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "base/result.hpp"
#include "base/units.hpp"
#include "sys/fd.hpp"

namespace sandbox::control {

// Readiness events for one thread. Asio underneath; kept out of this header because it is slow to
// compile. Handlers run from run() only, never from the call that sets them.
// One thread. A blocked handler blocks everybody: long work is for worker processes.
class Loop {
public:
    using Handler = std::function<void()>;

    Loop();
    ~Loop();
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

    // Owns one descriptor; destroying it forgets its handlers and closes it. At most one handler a
    // direction; each is called once and set again by who wants more. The loop must outlive it.
    class Watch {
    public:
        ~Watch();
        Watch(const Watch&) = delete;
        Watch& operator=(const Watch&) = delete;
        int fd() const noexcept;
        void when_readable(Handler handler);  // or hung up
        void when_writable(Handler handler);
        bool waits_readable() const noexcept;
        bool waits_writable() const noexcept;

    private:
        friend class Loop;
        struct State;
        explicit Watch(std::shared_ptr<State> state);
        std::shared_ptr<State> state_;
    };
    [[nodiscard]] Result<std::unique_ptr<Watch>> watch(sys::UniqueFd fd);

    // One point in time; setting it again replaces the earlier one. CLOCK_MONOTONIC.
    class Timer {
    public:
        ~Timer();
        Timer(const Timer&) = delete;
        Timer& operator=(const Timer&) = delete;
        void after(Millis delay, Handler handler);
        void cancel();

    private:
        friend class Loop;
        struct State;
        explicit Timer(std::shared_ptr<State> state);
        std::shared_ptr<State> state_;
    };
    std::unique_ptr<Timer> timer();

    void soon(Handler handler);  // on the next turn

    // Returns after stop().
    void run();
    void stop();

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace sandbox::control
