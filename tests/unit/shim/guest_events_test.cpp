// SPDX-License-Identifier: Apache-2.0
#include "shim/guest_events.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "support.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::shim {
namespace {

wire::Nonce nonce()
{
    wire::Nonce bytes{};
    bytes.fill(0x5A);
    return bytes;
}

// A sandbox-init of our making on the other end of the stream.
class Speaker {
public:
    explicit Speaker(sys::UniqueFd fd) : fd_(std::move(fd)) {}

    void say_bytes(std::span<const std::byte> bytes) const
    {
        ASSERT_EQ(send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(bytes.size()));
    }
    template <class M>
    void say(const M& message) const
    {
        say_bytes(VALUE(wire::encode(message)));
    }
    void greet() const { say(wire::EventAuth{wire::kProtocolVersion, nonce()}); }
    void beat(std::uint64_t sequence) const { say(wire::Heartbeat{sequence, 1}); }
    int fd() const { return fd_.get(); }
    void leave() { fd_.reset(); }

private:
    sys::UniqueFd fd_;
};

struct Line {
    Line() : Line(sys::socket_pair(sys::SocketType::stream).value()) {}
    explicit Line(sys::SocketPair pair)
        : stream(std::move(pair.first), nonce()), guest(std::move(pair.second))
    {
    }
    Code refusal()
    {
        const auto frames = stream.read_more();
        return frames ? Code::internal : frames.error().code();
    }
    EventStream stream;
    Speaker guest;
};

TEST(EventStream, CountsFramesBehindTheRightNonce)
{
    Line line;
    line.guest.greet();
    EXPECT_EQ(VALUE(line.stream.read_more()), 0U);  // a nonce alone proves no life
    line.guest.beat(1);
    line.guest.say(wire::ServiceStateEvent{2, wire::ServiceState::exited, -9, 0});
    line.guest.say(wire::GuestStateEvent{7, wire::GuestEvent::oom_kill, 1});
    EXPECT_EQ(VALUE(line.stream.read_more()), 3U);
    ASSERT_TRUE(line.stream.service());
    EXPECT_EQ(line.stream.service()->exit, -9);
    EXPECT_EQ(VALUE(line.stream.read_more()), 0U);
    line.guest.leave();
    EXPECT_EQ(line.refusal(), Code::unavailable);
}

TEST(EventStream, TakesTheFirstFrameByteByByte)
{
    Line line;
    const auto auth = VALUE(wire::encode(wire::EventAuth{wire::kProtocolVersion, nonce()}));
    for (const std::byte& byte : auth) {
        line.guest.say_bytes({&byte, 1});
        EXPECT_EQ(VALUE(line.stream.read_more()), 0U);
    }
    line.guest.beat(1);
    EXPECT_EQ(VALUE(line.stream.read_more()), 1U);
}

TEST(EventStream, TellsAPeerWithoutTheNonceNothing)
{
    for (const std::size_t changed : {0UL, 31UL}) {
        Line line;
        wire::Nonce other = nonce();
        other.at(changed) ^= 1;
        line.guest.say(wire::EventAuth{wire::kProtocolVersion, other});
        EXPECT_EQ(line.refusal(), Code::corrupt);
        std::byte answer{};
        EXPECT_LT(recv(line.guest.fd(), &answer, 1, MSG_DONTWAIT), 0);
    }
    // The nonce comes before the version: a foreigner does not even learn that.
    Line line;
    auto auth = VALUE(wire::encode(wire::EventAuth{wire::kProtocolVersion, wire::Nonce{}}));
    auth[6] = std::byte{99};
    line.guest.say_bytes(auth);
    EXPECT_EQ(line.refusal(), Code::corrupt);
    std::byte answer{};
    EXPECT_LT(recv(line.guest.fd(), &answer, 1, MSG_DONTWAIT), 0);
}

TEST(EventStream, AnswersAnotherVersionWithAnError)
{
    Line line;
    auto auth = VALUE(wire::encode(wire::EventAuth{wire::kProtocolVersion, nonce()}));
    auth[6] = std::byte{99};
    line.guest.say_bytes(auth);
    EXPECT_EQ(line.refusal(), Code::corrupt);
    std::array<std::byte, 64> answer{};
    ASSERT_GT(recv(line.guest.fd(), answer.data(), answer.size(), MSG_DONTWAIT), 5);
    EXPECT_EQ(answer[4], std::byte{wire::ErrorMessage::kType});
    EXPECT_EQ(answer[6], std::byte{1});
}

TEST(EventStream, RefusesReplaysAndWhatIsNoEvent)
{
    const auto refused = [](auto... messages) {
        Line line;
        line.guest.greet();
        (line.guest.say(messages), ...);
        return line.refusal() == Code::corrupt;
    };
    EXPECT_TRUE(refused(wire::Heartbeat{0, 1}));
    EXPECT_TRUE(refused(wire::Heartbeat{5, 1}, wire::Heartbeat{5, 2}));
    EXPECT_TRUE(refused(wire::Heartbeat{5, 1}, wire::Heartbeat{4, 2}));
    EXPECT_TRUE(refused(wire::EventAuth{wire::kProtocolVersion, nonce()}));
    EXPECT_TRUE(refused(wire::ErrorMessage{2, "no"}));
    EXPECT_TRUE(refused(wire::Started{1}));
    EXPECT_FALSE(refused(wire::Heartbeat{5, 1}, wire::Heartbeat{6, 2}));
    Line line;
    line.guest.beat(1);
    line.guest.say(wire::Heartbeat{2, 1});
    EXPECT_EQ(line.refusal(), Code::corrupt);  // before EVENT_AUTH
}

// A watch on a loop of its own, until somebody is told something.
struct Watch {
    explicit Watch(Millis liveness)
        : line(), events(loop, std::move(line.stream), liveness,
                         {[this](const std::string& why) { violation = why; },
                          [this](const std::string& why) {
                              silence = why;
                              loop.stop();
                          }})
    {
    }
    Loop loop;
    Line line;
    std::string violation;
    std::string silence;
    GuestEvents events;
};

TEST(GuestEvents, TellsOfSilenceOnceTheTimeIsOver)
{
    Watch watch(Millis{40});
    ASSERT_TRUE(watch.events.start());
    watch.line.guest.greet();
    const auto began = sys::boottime_ns();
    watch.loop.run();
    EXPECT_GE(sys::boottime_ns() - began, 40'000'000);
    EXPECT_EQ(watch.silence, "sandbox-init gave no sign of life for 40ms");
    EXPECT_EQ(watch.violation, "");
}

TEST(GuestEvents, EachFramePutsTheEndOff)
{
    Watch watch(Millis{60});
    ASSERT_TRUE(watch.events.start());
    watch.line.guest.greet();
    const auto began = sys::boottime_ns();
    std::uint64_t sequence = 0;
    std::function<void()> beat = [&] {
        watch.line.guest.beat(++sequence);
        if (sequence < 10) static_cast<void>(watch.loop.after(Millis{20}, beat));
    };
    beat();
    watch.loop.run();
    EXPECT_GE(sys::boottime_ns() - began, (9 * 20 + 60) * 1'000'000LL);
    EXPECT_EQ(sequence, 10U);
}

TEST(GuestEvents, AGuestThatStandsStillIsNotTakenForASilentOne)
{
    Watch watch(Millis{40});
    ASSERT_TRUE(watch.events.start());
    watch.events.hold();
    const auto began = sys::boottime_ns();
    static_cast<void>(watch.loop.after(Millis{100}, [&] { ASSERT_TRUE(watch.events.release()); }));
    watch.loop.run();
    EXPECT_GE(sys::boottime_ns() - began, 140'000'000);
    EXPECT_NE(watch.silence, "");  // and from then on its silence counts
}

TEST(GuestEvents, CountsWhatTheGuestSaysItKilledForMemory)
{
    Watch watch(Millis{60'000});
    ASSERT_TRUE(watch.events.start());
    watch.line.guest.greet();
    watch.line.guest.say(wire::GuestStateEvent{1, wire::GuestEvent::oom_kill, 2});
    EXPECT_EQ(watch.events.count_oom_kills(), 2U);
    watch.line.guest.say(wire::GuestStateEvent{2, wire::GuestEvent::clock_stepped, 7});
    watch.line.guest.say(wire::GuestStateEvent{3, wire::GuestEvent::oom_kill, UINT64_MAX});
    watch.line.guest.say(wire::ServiceStateEvent{4, wire::ServiceState::exited, 0, 0});
    watch.events.await_service_end(sys::Deadline::after(Millis{10'000}));
    EXPECT_EQ(watch.events.oom_kills(), 1'000'000U);  // whatever it says, no sum overflows
}

wire::Nonce rotated()
{
    wire::Nonce bytes{};
    bytes.fill(0xA5);
    return bytes;
}

TEST(GuestEvents, GoesOnWithARotatedNonceWhereTheOldStreamEnded)
{
    Watch watch(Millis{60'000});
    ASSERT_TRUE(watch.events.start());
    watch.line.guest.greet();
    watch.line.guest.say(wire::GuestStateEvent{7, wire::GuestEvent::oom_kill, 2});
    watch.line.guest.leave();
    auto pair = VALUE(sys::socket_pair(sys::SocketType::stream));
    const Speaker guest(std::move(pair.second));
    ASSERT_TRUE(watch.events.replace(std::move(pair.first), rotated(),
                                     sys::Deadline::after(Millis{10'000})));
    EXPECT_EQ(watch.events.oom_kills(), 2U);  // what came on the old one counts
    guest.say(wire::EventAuth{wire::kProtocolVersion, rotated()});
    guest.say(wire::GuestStateEvent{8, wire::GuestEvent::oom_kill, 1});
    EXPECT_EQ(watch.events.count_oom_kills(), 3U);
    EXPECT_EQ(watch.violation, "");
    guest.beat(8);  // the numbers of the old stream are spent, too
    watch.events.count_oom_kills();
    EXPECT_NE(watch.violation, "");
}

TEST(GuestEvents, TakesNoOldNonceOnceItIsRotated)
{
    Watch watch(Millis{60'000});
    ASSERT_TRUE(watch.events.start());
    watch.line.guest.greet();
    auto pair = VALUE(sys::socket_pair(sys::SocketType::stream));
    const Speaker guest(std::move(pair.second));
    // A guest that keeps its end open does not hold us up.
    ASSERT_TRUE(
        watch.events.replace(std::move(pair.first), rotated(), sys::Deadline::after(Millis{20})));
    guest.greet();
    watch.events.count_oom_kills();
    EXPECT_NE(watch.violation, "");
}

TEST(GuestEvents, WaitsForTheEndOfAServiceNoLongerThanItWasTold)
{
    Watch watch(Millis{60'000});
    ASSERT_TRUE(watch.events.start());
    watch.line.guest.greet();
    watch.events.await_service_end(sys::Deadline::after(Millis{5}));
    watch.line.guest.leave();
    watch.events.await_service_end(sys::Deadline::never());
    EXPECT_EQ(watch.events.oom_kills(), 0U);
}

TEST(GuestEvents, ALiarIsToldOfAndHasNoVoiceLeft)
{
    Watch watch(Millis{60});
    ASSERT_TRUE(watch.events.start());
    watch.line.guest.greet();
    watch.line.guest.beat(2);
    watch.line.guest.beat(2);
    std::uint64_t sequence = 2;
    std::function<void()> beat = [&] {
        const auto frame = VALUE(wire::encode(wire::Heartbeat{++sequence, 1}));
        // Into a stream that is closed sooner or later.
        static_cast<void>(
            send(watch.line.guest.fd(), frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
        if (sequence < 100) static_cast<void>(watch.loop.after(Millis{10}, beat));
    };
    beat();
    watch.loop.run();
    EXPECT_NE(watch.violation.find("does not grow"), std::string::npos) << watch.violation;
    EXPECT_NE(watch.silence, "");
    EXPECT_LT(sequence, 100U);
}

}  // namespace
}  // namespace sandbox::shim
