// SPDX-License-Identifier: Apache-2.0
#include "channel/door.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::channel {
namespace {

using State = Knock::State;

// A connection that has not said CONNECT yet, and the client's end of it.
struct Visit {
    sys::UniqueFd client;
    Knock knock;
};

Visit visit()
{
    auto pair = sys::socket_pair(sys::SocketType::stream).value();
    return {std::move(pair.first), Knock(std::move(pair.second))};
}

void say(const sys::UniqueFd& fd, std::string_view text)
{
    ASSERT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
}

TEST(AssignedPort, SaysWhichSessionItIsAndWhereItsLeafLies)
{
    for (const std::uint32_t session : {2U, 77U, (1U << 21) - 1}) {
        for (const std::uint32_t slot : {0U, 1U, 319U, 511U}) {
            const std::uint32_t port = assigned_port(session, slot);
            EXPECT_NE(port & kFirstAssignedPort, 0U);
            EXPECT_EQ(take_apart(port).session, session);
            EXPECT_EQ(take_apart(port).slot, slot);
        }
    }
}

TEST(ParseConnect, TakesEveryPortInDecimalAndTheWordInAnyCase)
{
    EXPECT_EQ(parse_connect("CONNECT 5001\n"), 5001U);
    EXPECT_EQ(parse_connect("connect 0\n"), 0U);
    EXPECT_EQ(parse_connect("CoNnEcT 4294967295\n"), 4294967295U);
}

TEST(ParseConnect, RefusesWhatAHostileClientMayWrite)
{
    const std::vector<std::string> hostile{"",
                                           "\n",
                                           "CONNECT",
                                           "CONNECT\n",
                                           "CONNECT \n",
                                           "CONNECT  5001\n",
                                           "CONNECT 5001",
                                           "CONNECT 5001 \n",
                                           "CONNECT 5001\r\n",
                                           " CONNECT 5001\n",
                                           "CONNECT\t5001\n",
                                           "CONNECT +5001\n",
                                           "CONNECT -1\n",
                                           "CONNECT 05001\n",
                                           "CONNECT 00\n",
                                           "CONNECT 0x10\n",
                                           "CONNECT 4294967296\n",
                                           "CONNECT 99999999999999999\n",
                                           "CONNECT 50.1\n",
                                           "CONNECT five\n",
                                           "CONNECT 5001\n\n",
                                           "CONNECT 5001\nGET /\n",
                                           std::string("CONNECT 5001\0\n", 14),
                                           std::string("CONNECT 50\0001\n", 14),
                                           "CONNECTED 5001\n",
                                           "GET / HTTP/1.1\r\n",
                                           "CONNECT 5001" + std::string(kLongestLine, ' ') + "\n",
                                           "\xff\xfe CONNECT 1\n"};
    for (const std::string& line : hostile) EXPECT_FALSE(parse_connect(line)) << line;
}

TEST(ParseConnect, ReadsBackTheRequestOfOurOwnClientForManyPorts)
{
    for (std::uint32_t port = 1; port < 0x80000000U; port = port * 3 + 1) {
        EXPECT_EQ(parse_connect("CONNECT " + std::to_string(port) + "\n"), port);
    }
}

TEST(Knock, FindsThePortWhereverTheLineIsCut)
{
    const std::string line = "CONNECT 5001\n";
    for (std::size_t cut = 1; cut < line.size(); ++cut) {
        Visit v = visit();
        EXPECT_EQ(v.knock.read_more(), State::waiting);
        say(v.client, line.substr(0, cut));
        EXPECT_EQ(v.knock.read_more(), State::waiting) << cut;
        say(v.client, line.substr(cut));
        EXPECT_EQ(v.knock.read_more(), State::connected) << cut;
        EXPECT_EQ(v.knock.port(), 5001U);
    }
}

TEST(Knock, LeavesWhatFollowsTheLineToTheStream)
{
    Visit v = visit();
    say(v.client, "CONNECT 5001\nframes");
    ASSERT_EQ(v.knock.read_more(), State::connected);
    const sys::UniqueFd stream = v.knock.take();
    std::string rest(16, '\0');
    const ssize_t count = recv(stream.get(), rest.data(), rest.size(), MSG_DONTWAIT);
    ASSERT_EQ(count, 6);
    EXPECT_EQ(rest.substr(0, 6), "frames");
}

TEST(Knock, RefusesALineThatDoesNotEndAfterItsLongestLength)
{
    Visit v = visit();
    say(v.client, std::string(kLongestLine - 1, 'C'));
    EXPECT_EQ(v.knock.read_more(), State::waiting);
    say(v.client, "C");
    EXPECT_EQ(v.knock.read_more(), State::refused);
}

TEST(Knock, RefusesAClientThatLeavesBeforeTheLineIsWhole)
{
    Visit v = visit();
    say(v.client, "CONNECT 50");
    v.client.reset();
    EXPECT_EQ(v.knock.read_more(), State::refused);
}

TEST(Knock, RefusesALineThatIsNoConnect)
{
    Visit v = visit();
    say(v.client, "HELLO\n");
    EXPECT_EQ(v.knock.read_more(), State::refused);
}

// A door in a folder of its own, served by a thread that handles one connection.
class Door : public testing::Test {
protected:
    Door()
    {
        std::string pattern = "/tmp/sandbox-door-XXXXXX";
        folder_ = mkdtemp(pattern.data());
        listener_ = sys::unix_listen(path(), sys::SocketType::stream, 0600).value();
    }
    ~Door() override
    {
        if (server_.joinable()) server_.join();
        std::filesystem::remove_all(folder_);
    }
    std::string path() const { return folder_ + "/" + kDoorName; }

    // Reads the request, answers, and keeps the connection until the client has gone.
    void answer(std::string text)
    {
        server_ = std::thread([this, text = std::move(text)] {
            auto socket = sys::accept_one(listener_.get());
            if (!socket) return;
            std::string line(kLongestLine, '\0');
            const ssize_t count = recv(socket->get(), line.data(), line.size(), 0);
            asked_ = line.substr(0, count > 0 ? static_cast<std::size_t>(count) : 0);
            static_cast<void>(send(socket->get(), text.data(), text.size(), MSG_NOSIGNAL));
            if (text.empty()) return;
            static_cast<void>(recv(socket->get(), line.data(), line.size(), 0));
        });
    }

    std::string folder_;
    sys::UniqueFd listener_;
    std::thread server_;
    std::string asked_;
};

constexpr Millis kPatience{10'000};

TEST_F(Door, GivesAStreamAfterOkAndReadsNotOneByteMore)
{
    answer(connected_line(kFirstAssignedPort + 7) + "X");
    auto stream = connect(path(), 5001, sys::Deadline::after(kPatience));
    ASSERT_TRUE(stream) << stream.error().message();
    char next = 0;
    EXPECT_EQ(recv(stream->get(), &next, 1, 0), 1);
    EXPECT_EQ(next, 'X');
    stream->reset();
    server_.join();
    EXPECT_EQ(asked_, "CONNECT 5001\n");
}

TEST_F(Door, ThatClosesMeansThatNobodyListens)
{
    answer("");
    const auto stream = connect(path(), 4999, sys::Deadline::after(kPatience));
    ASSERT_FALSE(stream);
    EXPECT_EQ(stream.error().code(), Code::unavailable);
    EXPECT_NE(stream.error().message().find("4999"), std::string::npos);
}

TEST_F(Door, ThatAnswersALineWithoutEndIsCorrupt)
{
    answer("OK " + std::string(2 * kLongestLine, '1'));
    const auto stream = connect(path(), 5001, sys::Deadline::after(kPatience));
    ASSERT_FALSE(stream);
    EXPECT_EQ(stream.error().code(), Code::corrupt);
}

TEST_F(Door, ThatAnswersAnythingElseIsCorrupt)
{
    answer("NO 1\n");
    const auto stream = connect(path(), 5001, sys::Deadline::after(kPatience));
    ASSERT_FALSE(stream);
    EXPECT_EQ(stream.error().code(), Code::corrupt);
}

TEST_F(Door, ThatStaysSilentIsLeftAtTheDeadline)
{
    // The connection waits in the backlog: nobody accepts it.
    const auto stream = connect(path(), 5001, sys::Deadline::after(Millis{30}));
    ASSERT_FALSE(stream);
    EXPECT_EQ(stream.error().code(), Code::deadline_exceeded);
}

TEST_F(Door, ThatIsNotThereIsAnErrorThatNamesIt)
{
    const auto stream = connect(folder_ + "/none", 5001, sys::Deadline::after(kPatience));
    ASSERT_FALSE(stream);
    EXPECT_EQ(stream.error().code(), Code::not_found);
}

}  // namespace
}  // namespace sandbox::channel
