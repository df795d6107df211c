// SPDX-License-Identifier: Apache-2.0
#include "shim/loop.hpp"

#include <poll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <map>

// One thread: without this Asio would lock around every call.
#define BOOST_ASIO_DISABLE_THREADS
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

namespace sandbox::shim {

namespace asio = boost::asio;

struct Loop::State {
    enum class Ownership { borrowed, owned };

    struct Watch {
        Watch(asio::io_context& context, int fd, Ownership how, Wanted what = Wanted::reading)
            : descriptor(context, fd), ownership(how),
              wanted(what == Wanted::reading ? asio::posix::stream_descriptor::wait_read
                                             : asio::posix::stream_descriptor::wait_write)
        {
        }
        ~Watch() { let_go(); }
        void let_go()
        {
            // Asio closes what it owns; a borrowed descriptor is only taken out of its epoll set.
            if (ownership == Ownership::borrowed && descriptor.is_open()) descriptor.release();
        }
        Watch(const Watch&) = delete;
        Watch& operator=(const Watch&) = delete;

        asio::posix::stream_descriptor descriptor;
        Ownership ownership;
        asio::posix::stream_descriptor::wait_type wanted;
        Loop::Handler handler;
    };

    asio::io_context context{1};
    std::map<Token, std::shared_ptr<Watch>> watches;
    Token next = 1;

    void arm(Token token, const std::shared_ptr<Watch>& watch)
    {
        // Weak: a watch that was forgotten must not be kept alive by the wait it cancelled.
        watch->descriptor.async_wait(watch->wanted,
                                     [this, token, weak = std::weak_ptr<Watch>(watch)](
                                         const boost::system::error_code& error) {
                                         const auto alive = weak.lock();
                                         if (!alive || error || !watches.contains(token)) return;
                                         if (is_ready(*alive)) alive->handler();
                                         // The handler may have forgotten its own watch.
                                         if (watches.contains(token)) arm(token, alive);
                                     });
    }

    // Asio's word alone is not enough: when a handler closes one descriptor and opens another, the
    // event that was queued for the first may be given to the second.
    static bool is_ready(Watch& watch)
    {
        const bool reading = watch.wanted == asio::posix::stream_descriptor::wait_read;
        pollfd look{watch.descriptor.native_handle(), reading ? short{POLLIN} : short{POLLOUT}, 0};
        return poll(&look, 1, 0) > 0;
    }
};

Loop::Loop() : state_(std::make_unique<State>()) {}
// Before the io_context goes: descriptors give back what they borrowed.
Loop::~Loop() { state_->watches.clear(); }

Result<Loop::Token> Loop::when_readable(int fd, Handler handler)
{
    return watch(fd, Wanted::reading, std::move(handler));
}

Result<Loop::Token> Loop::when_writable(int fd, Handler handler)
{
    return watch(fd, Wanted::writing, std::move(handler));
}

Result<Loop::Token> Loop::watch(int fd, Wanted wanted, Handler handler)
{
    const Token token = state_->next++;
    // Asio throws where it cannot register; exceptions stop here.
    try {
        auto watch = std::make_shared<State::Watch>(state_->context, fd, State::Ownership::borrowed,
                                                    wanted);
        watch->handler = std::move(handler);
        state_->watches.emplace(token, watch);
        state_->arm(token, watch);
    } catch (const boost::system::system_error& error) {
        return fail(Code::io, std::string("watch a descriptor: ") + error.what());
    }
    return token;
}

Result<Loop::Token> Loop::after(std::chrono::milliseconds delay, Handler handler)
{
    // A timerfd, because Asio's timers run on the steady clock, which stands still while the host
    // sleeps.
    const int fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (fd < 0) return fail_errno("timerfd_create");
    // Zero would disarm it, timerfd_settime(2).
    const auto count = std::max<std::int64_t>(delay.count(), 1);
    itimerspec spec{};
    spec.it_value.tv_sec = count / 1000;
    spec.it_value.tv_nsec = (count % 1000) * 1'000'000;
    const Token token = state_->next++;
    try {
        auto watch = std::make_shared<State::Watch>(state_->context, fd, State::Ownership::owned);
        if (timerfd_settime(fd, 0, &spec, nullptr) < 0) return fail_errno("timerfd_settime");
        watch->handler = [this, token, handler = std::move(handler)] {
            // Before the handler: it may arm the next one, or destroy what this one belongs to.
            forget(token);
            handler();
        };
        state_->watches.emplace(token, watch);
        state_->arm(token, watch);
    } catch (const boost::system::system_error& error) {
        return fail(Code::io, std::string("watch a timer: ") + error.what());
    }
    return token;
}

// At once, even from the watch's own handler: the caller may close the descriptor next, and its
// number may then be another's.
void Loop::forget(Token token)
{
    const auto watch = state_->watches.find(token);
    if (watch == state_->watches.end()) return;
    watch->second->let_go();
    state_->watches.erase(watch);
}

void Loop::run()
{
    // Without it run() would return as soon as nothing is watched.
    const auto work = asio::make_work_guard(state_->context);
    // An io_context that was stopped has to be told before it runs again.
    state_->context.restart();
    state_->context.run();
}

void Loop::stop() { state_->context.stop(); }

}  // namespace sandbox::shim
