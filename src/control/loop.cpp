// SPDX-License-Identifier: Apache-2.0
#define BOOST_ASIO_DISABLE_THREADS
#include "control/loop.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

namespace sandbox::control {

namespace asio = boost::asio;

struct Loop::State {
    // One thread: the hint spares locks.
    asio::io_context context{1};
};

struct Loop::Watch::State : std::enable_shared_from_this<State> {
    // Asio registers the number; closing stays with UniqueFd.
    State(asio::io_context& context, sys::UniqueFd owned)
        : fd(std::move(owned)), descriptor(context, fd.get())
    {
    }
    // Before `fd` closes: Asio must not close a number that is ours.
    ~State() { descriptor.release(); }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    // One wait for each direction at a time: a handler is called once, and set again by who wants
    // more.
    void wait(asio::posix::stream_descriptor::wait_type kind, Handler State::* slot)
    {
        descriptor.async_wait(
            kind, [weak = weak_from_this(), slot](const boost::system::error_code& error) {
                const auto alive = weak.lock();
                if (!alive || error) return;
                // The handler may set the next one, or destroy the watch.
                if (const Handler handler = std::exchange((*alive).*slot, nullptr)) handler();
            });
    }

    sys::UniqueFd fd;
    asio::posix::stream_descriptor descriptor;
    Handler readable;
    Handler writable;
};

struct Loop::Timer::State : std::enable_shared_from_this<State> {
    explicit State(asio::io_context& context) : timer(context) {}
    asio::steady_timer timer;
    Handler handler;
};

Loop::Loop() : state_(std::make_unique<State>()) {}
Loop::~Loop() = default;

Loop::Watch::Watch(std::shared_ptr<State> state) : state_(std::move(state)) {}
Loop::Watch::~Watch()
{
    // A wait that is still under way finds no handler: it does nothing.
    state_->readable = nullptr;
    state_->writable = nullptr;
}
int Loop::Watch::fd() const noexcept { return state_->fd.get(); }
bool Loop::Watch::waits_readable() const noexcept { return state_->readable != nullptr; }
bool Loop::Watch::waits_writable() const noexcept { return state_->writable != nullptr; }

void Loop::Watch::when_readable(Handler handler)
{
    const bool armed = waits_readable();
    state_->readable = std::move(handler);
    // The wait that is under way calls the new handler.
    if (!armed) state_->wait(asio::posix::stream_descriptor::wait_read, &State::readable);
}

void Loop::Watch::when_writable(Handler handler)
{
    const bool armed = waits_writable();
    state_->writable = std::move(handler);
    if (!armed) state_->wait(asio::posix::stream_descriptor::wait_write, &State::writable);
}

Result<std::unique_ptr<Loop::Watch>> Loop::watch(sys::UniqueFd fd)
{
    // A handler reads until there is nothing left: on a blocking descriptor it would hang.
    TRY_VOID(sys::set_nonblocking(fd.get()));
    try {
        return std::unique_ptr<Watch>(
            new Watch(std::make_shared<Watch::State>(state_->context, std::move(fd))));
    } catch (const boost::system::system_error& error) {
        return fail(Code::io, std::string("watch a descriptor: ") + error.what());
    }
}

Loop::Timer::Timer(std::shared_ptr<State> state) : state_(std::move(state)) {}
// Its completion comes with an error and finds nothing to call.
Loop::Timer::~Timer() { cancel(); }

void Loop::Timer::after(Millis delay, Handler handler)
{
    state_->handler = std::move(handler);
    state_->timer.expires_after(delay);
    state_->timer.async_wait(
        [weak = state_->weak_from_this()](const boost::system::error_code& error) {
            const auto alive = weak.lock();
            if (!alive || error) return;
            if (const Handler due = std::exchange(alive->handler, nullptr)) due();
        });
}

void Loop::Timer::cancel()
{
    state_->handler = nullptr;
    state_->timer.cancel();
}

std::unique_ptr<Loop::Timer> Loop::timer()
{
    return std::unique_ptr<Timer>(new Timer(std::make_shared<Timer::State>(state_->context)));
}

void Loop::soon(Handler handler) { asio::post(state_->context, std::move(handler)); }

void Loop::run()
{
    // Without it run() returns as soon as nothing is waited for.
    const auto work = asio::make_work_guard(state_->context);
    state_->context.restart();
    state_->context.run();
}

void Loop::stop() { state_->context.stop(); }

}  // namespace sandbox::control
