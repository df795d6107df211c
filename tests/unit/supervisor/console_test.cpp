// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>

#include "../ledger/support.hpp"
#include "supervisor/console_keys.hpp"
#include "supervisor/console_relay.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::supervisor {
namespace {

// Fed in every way to cut it in two, and byte by byte.
void expect_passes(const std::string& keys, const std::string& typed, const std::string& wanted,
                   bool found)
{
    for (std::size_t cut = 0; cut <= typed.size(); ++cut) {
        DetachKeys scanner(keys);
        std::string out = scanner.feed(typed.substr(0, cut));
        out += scanner.feed(typed.substr(cut));
        EXPECT_EQ(out, wanted) << "cut at " << cut;
        EXPECT_EQ(scanner.found(), found) << "cut at " << cut;
    }
    DetachKeys scanner(keys);
    std::string out;
    for (const char key : typed) out += scanner.feed(std::string_view(&key, 1));
    EXPECT_EQ(out, wanted);
    EXPECT_EQ(scanner.found(), found);
}

TEST(DetachKeys, EndTheAttachmentAndAreNotPassedOn)
{
    expect_passes("\x10\x11", "abc\x10\x11", "abc", true);
    expect_passes("\x10\x11", "\x10\x11never seen", "", true);
    expect_passes("q", "abq", "ab", true);
}

TEST(DetachKeys, ABeginningThatGoesOnOtherwiseIsPassedOn)
{
    expect_passes("\x10\x11", "a\x10z", "a\x10z", false);
    expect_passes("\x10\x11", "\x10\x10\x11x", "\x10", true);
    expect_passes("aab", "aaab", "a", true);
    expect_passes("abab", "abaabab", "aba", true);
}

TEST(DetachKeys, ABeginningAloneIsHeldBack)
{
    expect_passes("\x10\x11", "ab\x10", "ab", false);
    expect_passes("", "any\x10\x11thing", "any\x10\x11thing", false);
}

class Spliced : public testing::Test {
protected:
    void SetUp() override { std::signal(SIGPIPE, SIG_IGN); }

    // Steps the relay as a poll loop would, until it has nothing to do for now.
    static void pump(Relay& relay)
    {
        while (!relay.is_over()) {
            pollfd wait = relay.wait();
            if (poll(&wait, 1, 0) <= 0) return;
            relay.step();
        }
    }
    static std::string drain(int fd)
    {
        std::string all(1U << 20, '\0');
        const ssize_t count = read(fd, all.data(), all.size());
        all.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
        return all;
    }
};

TEST_F(Spliced, MovesBytesFromPipeToPipeUntilTheSourceEnds)
{
    sys::Pipe in = VALUE(sys::make_pipe());
    sys::Pipe out = VALUE(sys::make_pipe());
    Relay relay(in.read.get(), out.write.get());
    pump(relay);
    EXPECT_FALSE(relay.is_over());
    EXPECT_TRUE(relay.is_dry());
    EXPECT_OK(sys::write_all(in.write.get(), "some bytes"));
    pump(relay);
    EXPECT_EQ(drain(out.read.get()), "some bytes");
    in.write.reset();
    pump(relay);
    EXPECT_TRUE(relay.is_over());
}

TEST_F(Spliced, WaitsForASinkThatIsFull)
{
    sys::Pipe in = VALUE(sys::make_pipe());
    sys::Pipe out = VALUE(sys::make_pipe());
    EXPECT_OK(sys::set_nonblocking(in.write.get()));
    EXPECT_OK(sys::set_nonblocking(out.read.get()));
    Relay relay(in.read.get(), out.write.get());
    const std::string piece(65536, 'x');
    std::size_t written = 0;
    // Both pipes fill and then nothing moves; a blocking sink does not block us.
    for (int turn = 0; turn < 100; ++turn) {
        const ssize_t count = write(in.write.get(), piece.data(), piece.size());
        if (count > 0) written += static_cast<std::size_t>(count);
        pump(relay);
    }
    EXPECT_FALSE(relay.is_dry());
    EXPECT_EQ(relay.wait().fd, out.write.get());
    std::size_t got = 0;
    for (std::string some = drain(out.read.get()); !some.empty(); some = drain(out.read.get())) {
        got += some.size();
        pump(relay);
    }
    EXPECT_EQ(got, written);
    EXPECT_TRUE(relay.is_dry());
}

TEST_F(Spliced, EndsWhenTheReaderGoesAway)
{
    sys::Pipe in = VALUE(sys::make_pipe());
    sys::Pipe out = VALUE(sys::make_pipe());
    Relay relay(in.read.get(), out.write.get());
    out.read.reset();
    EXPECT_OK(sys::write_all(in.write.get(), "to nobody"));
    pump(relay);
    EXPECT_TRUE(relay.is_over());
}

TEST_F(Spliced, WorksWhereTheKernelCannotSplice)
{
    ledger::test::TempDir dir;
    const std::string file = dir.path() + "/appended";
    sys::Pipe in = VALUE(sys::make_pipe());
    const auto appended = VALUE(sys::open_file(file, O_WRONLY | O_CREAT | O_APPEND, 0600));
    Relay to_file(in.read.get(), appended.get());
    EXPECT_OK(sys::write_all(in.write.get(), "appended"));
    pump(to_file);
    EXPECT_EQ(ledger::test::read_bytes(file), "appended");

    sys::SocketPair pair = VALUE(sys::socket_pair(sys::SocketType::stream));
    Relay to_socket(in.read.get(), pair.first.get());
    const std::string piece(50'000, 's');
    EXPECT_OK(sys::write_all(in.write.get(), piece));
    in.write.reset();
    pump(to_socket);
    EXPECT_EQ(drain(pair.second.get()), piece);
    EXPECT_TRUE(to_socket.is_over());
}

TEST_F(Spliced, FileAndNullAsSourcesComeToTheirEnd)
{
    ledger::test::TempDir dir;
    const std::string file = dir.path() + "/source";
    ledger::test::write_bytes(file, "whole file");
    sys::Pipe out = VALUE(sys::make_pipe());
    const auto source = VALUE(sys::open_file(file, O_RDONLY));
    Relay relay(source.get(), out.write.get());
    pump(relay);
    EXPECT_TRUE(relay.is_over());
    EXPECT_EQ(drain(out.read.get()), "whole file");
    const auto null = VALUE(sys::open_file("/dev/null", O_RDONLY));
    Relay nothing(null.get(), out.write.get());
    pump(nothing);
    EXPECT_TRUE(nothing.is_over());
}

}  // namespace
}  // namespace sandbox::supervisor
