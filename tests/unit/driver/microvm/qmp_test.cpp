// SPDX-License-Identifier: Apache-2.0
#include "driver/microvm/qmp.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::driver::microvm {
namespace {

constexpr std::string_view kGreeting =
    R"({"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "Debian"}, )"
    R"("capabilities": ["oob"]}})"
    "\r\n";

sys::Deadline in_a_moment() { return sys::Deadline::after(Millis{5'000}); }
sys::Deadline at_once() { return sys::Deadline::after(Millis{0}); }

std::vector<QmpMessage> read(std::string_view text)
{
    QmpReader reader;
    std::vector<QmpMessage> messages;
    EXPECT_TRUE(reader.feed(text, messages));
    return messages;
}

TEST(QmpParse, ReadsTheFourKindsOfMessages)
{
    const auto messages = read(std::string(kGreeting) +
                               "{\"return\": {}}\r\n"
                               "{\"return\": {\"status\": \"running\", \"singlestep\": false}}\r\n"
                               "{\"error\": {\"class\": \"GenericError\", \"desc\": \"no\"}}\r\n"
                               "{\"timestamp\": {\"seconds\": 1, \"microseconds\": 2}, \"event\": "
                               "\"SHUTDOWN\", \"data\": {\"guest\": true, \"reason\": "
                               "\"guest-reset\"}}\r\n");
    const std::vector<QmpMessage> expected{QmpGreeting{"7.2.22"}, QmpReturn{}, QmpReturn{"running"},
                                           QmpRefusal{"GenericError: no"},
                                           QmpEvent{"SHUTDOWN", "guest-reset"}};
    EXPECT_EQ(messages, expected);
}

TEST(QmpParse, ReadsTheSameHoweverTheBytesAreCut)
{
    const std::string text = std::string(kGreeting) + "{\"return\": {}}\r\n";
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        QmpReader reader;
        std::vector<QmpMessage> messages;
        ASSERT_TRUE(reader.feed(std::string_view(text).substr(0, cut), messages));
        ASSERT_TRUE(reader.feed(std::string_view(text).substr(cut), messages));
        EXPECT_EQ(messages.size(), 2U) << cut;
    }
}

TEST(QmpParse, RefusesWhatIsNotQmp)
{
    for (const std::string_view line :
         {"[]", "1", "\"event\"", "{", "{}", "{\"return\": 1}", "{\"error\": \"x\"}",
          "{\"QMP\": {}}",
          "{\"QMP\": {\"version\": {\"qemu\": {\"major\": -1, \"minor\": 0, \"micro\": 0}}}}",
          "{\"QMP\": {\"version\": {\"qemu\": 1}}}", "{\"event\": 7}", "{\"event\": \"\"}", "\xff",
          "{\"event\": \"\xff\"}"}) {
        const auto message = parse_qmp(line);
        ASSERT_FALSE(message) << line;
        EXPECT_EQ(message.error().code(), Code::corrupt) << line;
    }
}

TEST(QmpParse, RefusesWhatIsNestedTooDeep)
{
    std::string deep = "{\"return\": ";
    for (int i = 0; i < 1000; ++i) deep += "[";
    EXPECT_FALSE(parse_qmp(deep));
    // A bracket inside a string is no depth.
    EXPECT_TRUE(parse_qmp("{\"event\": \"[[[[[[[[[[[[\\\"[[[[\"}"));
}

TEST(QmpParse, HoldsNoMoreThanOneLineOfAFlood)
{
    QmpReader reader;
    std::vector<QmpMessage> messages;
    const std::string chunk(4096, 'x');
    std::size_t taken = 0;
    while (reader.feed(chunk, messages)) {
        taken += chunk.size();
        ASSERT_LE(taken, kLongestQmpLine);
    }
    EXPECT_TRUE(messages.empty());
    // A failure is final, whatever follows.
    EXPECT_FALSE(reader.feed("{\"return\": {}}\n", messages));
}

TEST(QmpParse, CutsWordsThatPeopleWillSee)
{
    const std::string word(5000, 'a');
    const auto message = parse_qmp("{\"event\": \"" + word + "\"}");
    ASSERT_TRUE(message);
    EXPECT_LE(std::get<QmpEvent>(*message).name.size(), 256U);
}

class QmpTalk : public testing::Test {
protected:
    void say(std::string_view text) { ASSERT_TRUE(sys::write_all(pair_.second.get(), text)); }
    std::string heard()
    {
        char chunk[4096];
        const ssize_t got = ::recv(pair_.second.get(), chunk, sizeof chunk, MSG_DONTWAIT);
        return got > 0 ? std::string(chunk, static_cast<std::size_t>(got)) : std::string();
    }
    sys::SocketPair pair_ = sys::socket_pair(sys::SocketType::stream).value();
    Qmp qmp_{std::move(pair_.first)};
};

TEST_F(QmpTalk, GreetsAndNegotiates)
{
    say(kGreeting);
    say("{\"return\": {}}\r\n");
    EXPECT_EQ(qmp_.greet(in_a_moment()).value(), "7.2.22");
    EXPECT_EQ(heard(), "{\"execute\":\"qmp_capabilities\"}\n");
}

TEST_F(QmpTalk, KeepsTheNewestEventsThatComeBeforeAnAnswer)
{
    for (int i = 0; i < 200; ++i) say("{\"event\": \"E" + std::to_string(i) + "\"}\r\n");
    say("{\"return\": {\"status\": \"paused\"}}\r\n");
    EXPECT_EQ(qmp_.ask(QmpCommand::status, in_a_moment()).value().status, "paused");
    const auto events = qmp_.take_events();
    ASSERT_EQ(events.size(), kMostQmpEvents);
    EXPECT_EQ(events.back().name, "E199");
    EXPECT_TRUE(qmp_.take_events().empty());
}

TEST_F(QmpTalk, ReportsARefusalInTheVmmsWords)
{
    say("{\"error\": {\"class\": \"GenericError\", \"desc\": \"not \\u001b[31mnow\"}}\r\n");
    const auto answer = qmp_.ask(QmpCommand::cont, in_a_moment());
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code(), Code::denied);
    EXPECT_EQ(answer.error().message().find('\x1b'), std::string::npos);
}

TEST_F(QmpTalk, GivesUpOnAVmmThatDoesNotAnswer)
{
    const auto answer = qmp_.ask(QmpCommand::stop, at_once());
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code(), Code::deadline_exceeded);
    pair_.second.reset();
    EXPECT_FALSE(qmp_.ask(QmpCommand::stop, in_a_moment()));
}

TEST_F(QmpTalk, RefusesAnAnswerWhereAGreetingBelongs)
{
    say("{\"return\": {}}\r\n");
    EXPECT_FALSE(qmp_.greet(in_a_moment()));
}

}  // namespace
}  // namespace sandbox::driver::microvm
