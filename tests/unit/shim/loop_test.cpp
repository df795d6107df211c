// SPDX-License-Identifier: Apache-2.0
#include "shim/loop.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>

#include "support.hpp"
#include "sys/deadline.hpp"
#include "sys/file.hpp"

namespace sandbox::shim {
namespace {

using std::chrono::milliseconds;

void put(const sys::UniqueFd& fd, char c) { ASSERT_EQ(write(fd.get(), &c, 1), 1); }
char get(const sys::UniqueFd& fd)
{
    char c = 0;
    EXPECT_EQ(read(fd.get(), &c, 1), 1);
    return c;
}

TEST(Loop, CallsAgainWhileADescriptorIsNotDrained)
{
    Loop loop;
    const sys::Pipe pipe = sys::make_pipe().value();
    for (const char c : {'a', 'b', 'c'}) put(pipe.write, c);
    std::string seen;
    EXPECT_OK(loop.when_readable(pipe.read.get(), [&] {
        seen += get(pipe.read);  // one byte a call, though three are there
        if (seen.size() == 3) loop.stop();
    }));
    loop.run();
    EXPECT_EQ(seen, "abc");
}

TEST(Loop, CallsForAHangUp)
{
    Loop loop;
    sys::Pipe pipe = sys::make_pipe().value();
    int calls = 0;
    EXPECT_OK(loop.when_readable(pipe.read.get(), [&] {
        ++calls;
        loop.stop();
    }));
    pipe.write.reset();
    loop.run();
    EXPECT_EQ(calls, 1);
}

// Both events come in one batch; the first handler closes the second descriptor and makes a timer,
// which may get what the library had queued for that one.
TEST(Loop, DoesNotGiveATimerTheEventOfADescriptorThatWasClosed)
{
    for (int turn = 0; turn < 50; ++turn) {
        Loop loop;
        sys::Pipe first = sys::make_pipe().value();
        sys::Pipe second = sys::make_pipe().value();
        bool late = false;
        std::vector<Loop::Token> tokens(2);
        const auto replace = [&](sys::Pipe& own, sys::Pipe& other, std::size_t index) {
            get(own.read);
            loop.forget(tokens[1 - index]);
            other = {};
            EXPECT_OK(loop.after(milliseconds(60'000), [&] { late = true; }));
            EXPECT_OK(loop.after(milliseconds(1), [&] { loop.stop(); }));
        };
        tokens[0] =
            loop.when_readable(first.read.get(), [&] { replace(first, second, 0); }).value();
        tokens[1] =
            loop.when_readable(second.read.get(), [&] { replace(second, first, 1); }).value();
        put(first.write, 'x');
        put(second.write, 'y');
        loop.run();
        ASSERT_FALSE(late) << "a minute has not passed";
    }
}

TEST(Loop, LetsAHandlerForgetItselfAndCloseItsDescriptor)
{
    Loop loop;
    sys::Pipe pipe = sys::make_pipe().value();
    put(pipe.write, 'x');
    put(pipe.write, 'y');
    int calls = 0;
    Loop::Token token = 0;
    token = VALUE(loop.when_readable(pipe.read.get(), [&] {
        ++calls;
        loop.forget(token);
        pipe.read.reset();
        // Same number, another thing: the watch is gone and must not fire for it.
        pipe = sys::make_pipe().value();
        put(pipe.write, 'z');
    }));
    EXPECT_OK(loop.after(milliseconds(20), [&] { loop.stop(); }));
    loop.run();
    EXPECT_EQ(calls, 1);
}

TEST(Loop, LetsAHandlerForgetAnotherThatIsReadyToo)
{
    Loop loop;
    const sys::Pipe a = VALUE(sys::make_pipe());
    const sys::Pipe b = VALUE(sys::make_pipe());
    put(a.write, 'x');
    put(b.write, 'x');
    Loop::Token first = 0;
    Loop::Token second = 0;
    int calls = 0;
    first = VALUE(loop.when_readable(a.read.get(), [&] {
        ++calls;
        loop.forget(first);
        loop.forget(second);
    }));
    second = VALUE(loop.when_readable(b.read.get(), [&] {
        ++calls;
        loop.forget(first);
        loop.forget(second);
    }));
    EXPECT_OK(loop.after(milliseconds(20), [&] { loop.stop(); }));
    loop.run();
    EXPECT_EQ(calls, 1);
}

TEST(Loop, LeavesTheDescriptorOpenWhenItForgetsOrEnds)
{
    const sys::Pipe pipe = sys::make_pipe().value();
    {
        Loop loop;
        const auto token = VALUE(loop.when_readable(pipe.read.get(), [] {}));
        loop.forget(token);
        loop.forget(token);
        EXPECT_OK(loop.when_readable(pipe.read.get(), [] {}));
    }
    put(pipe.write, 'x');
    EXPECT_EQ(get(pipe.read), 'x');
}

TEST(Loop, FiresTimersInOrderOnceAndNeverEarly)
{
    Loop loop;
    const auto start = sys::boottime_ns();
    std::string order;
    EXPECT_OK(loop.after(milliseconds(60), [&] {
        order += 'c';
        EXPECT_GE(sys::boottime_ns() - start, 60'000'000);
        loop.stop();
    }));
    EXPECT_OK(loop.after(milliseconds(0), [&] { order += 'a'; }));
    EXPECT_OK(loop.after(milliseconds(20), [&] { order += 'b'; }));
    const auto forgotten = VALUE(loop.after(milliseconds(10), [&] { order += '!'; }));
    loop.forget(forgotten);
    loop.run();
    EXPECT_EQ(order, "abc");
}

TEST(Loop, LetsATimerStartAnother)
{
    Loop loop;
    int ticks = 0;
    std::function<void()> tick = [&] {
        if (++ticks == 5) return loop.stop();
        EXPECT_OK(loop.after(milliseconds(1), tick));
    };
    EXPECT_OK(loop.after(milliseconds(1), tick));
    loop.run();
    EXPECT_EQ(ticks, 5);
}

TEST(Loop, ServesManyDescriptors)
{
    Loop loop;
    std::deque<sys::Pipe> pipes;
    std::size_t served = 0;
    for (int i = 0; i < 200; ++i) {
        pipes.push_back(VALUE(sys::make_pipe()));
        const sys::Pipe& pipe = pipes.back();
        EXPECT_OK(loop.when_readable(pipe.read.get(), [&] {
            static_cast<void>(get(pipe.read));
            if (++served == pipes.size()) loop.stop();
        }));
    }
    for (const sys::Pipe& pipe : pipes) put(pipe.write, 'x');
    loop.run();
    EXPECT_EQ(served, 200U);
}

TEST(Loop, RefusesADescriptorThatIsNotOpen)
{
    Loop loop;
    sys::Pipe pipe = sys::make_pipe().value();
    const int number = pipe.read.get();
    pipe.read.reset();
    EXPECT_FALSE(loop.when_readable(number, [] {}));
}

TEST(Loop, RunsAgainAfterStop)
{
    Loop loop;
    for (int round = 0; round < 3; ++round) {
        bool fired = false;
        EXPECT_OK(loop.after(milliseconds(1), [&] {
            fired = true;
            loop.stop();
        }));
        loop.run();
        EXPECT_TRUE(fired);
    }
}

}  // namespace
}  // namespace sandbox::shim
