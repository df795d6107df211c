// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>

#include "shim/ring.hpp"
#include "shim/terminal_relay.hpp"
#include "support.hpp"
#include "sys/file.hpp"

namespace sandbox::shim {
namespace {

TEST(Ring, KnowsEachByteByItsPosition)
{
    Ring ring(8);
    EXPECT_EQ(ring.begin(), 0U);
    EXPECT_EQ(ring.from(0), "");
    ring.append("abc");
    ring.append("de");
    EXPECT_EQ(ring.begin(), 0U);
    EXPECT_EQ(ring.end(), 5U);
    EXPECT_EQ(ring.from(0), "abcde");
    EXPECT_EQ(ring.from(3), "de");
    EXPECT_EQ(ring.from(5), "");
}

TEST(Ring, LetsTheOldestBytesFallOut)
{
    Ring ring(8);
    std::string all;
    for (int i = 0; i < 100; ++i) {
        const std::string piece(static_cast<std::size_t>(i % 5), static_cast<char>('a' + i % 26));
        ring.append(piece);
        all += piece;
        ASSERT_EQ(ring.end(), all.size());
        ASSERT_EQ(ring.begin(), all.size() < 8 ? 0 : all.size() - 8);
        ASSERT_EQ(ring.from(ring.begin()), all.substr(static_cast<std::size_t>(ring.begin())));
    }
    ring.append("longer than all of it");
    EXPECT_EQ(ring.from(ring.begin()), "ll of it");
    EXPECT_EQ(ring.end(), all.size() + 21);
}

// A relay over a terminal of the test's own, with the program's side in hand.
class Relayed : public testing::Test {
protected:
    void SetUp() override
    {
        Terminal terminal;
        terminal.master.reset(posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
        ASSERT_TRUE(terminal.master);
        ASSERT_EQ(unlockpt(terminal.master.get()), 0);
        terminal.slave.reset(ioctl(terminal.master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY));
        ASSERT_TRUE(terminal.slave);
        termios mode{};
        ASSERT_EQ(tcgetattr(terminal.slave.get(), &mode), 0);
        cfmakeraw(&mode);
        ASSERT_EQ(tcsetattr(terminal.slave.get(), TCSANOW, &mode), 0);
        program_ = VALUE(sys::duplicate(terminal.slave.get()));
        relay_ = std::make_unique<TerminalRelay>(
            loop_, std::move(terminal),
            TerminalRelay::Hooks{[this](int signal) { signals_.push_back(signal); },
                                 [this] { ++changes_; }});
        EXPECT_OK(relay_->begin());
    }

    void write_all(std::string_view text) { EXPECT_OK(sys::write_all(program_.get(), text)); }
    // Turns of the loop until `done`; fails the test when it does not come to that.
    template <class Done>
    void until(Done done)
    {
        const auto deadline = sys::Deadline::after(Millis{10'000});
        while (!done() && !deadline.passed()) {
            EXPECT_OK(loop_.after(Millis{1}, [this] { loop_.stop(); }));
            loop_.run();
        }
        EXPECT_TRUE(done());
    }
    // Whole frames that came to the client, STDOUT joined.
    void hear(const sys::UniqueFd& client)
    {
        std::array<std::byte, 65536> chunk;
        const ssize_t count = recv(client.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
        ended_ = count == 0;
        if (count <= 0) return;
        std::span<const std::byte> bytes(chunk.data(), static_cast<std::size_t>(count));
        while (true) {
            const auto next = decoder_.next(bytes);
            ASSERT_TRUE(next);
            const auto& frame = *next;
            if (!frame) break;
            const auto message = wire::decode_as<wire::SessionMessage>(wire::Direction::to_host,
                                                                       frame->type, frame->payload);
            ASSERT_TRUE(message);
            if (const auto* out = std::get_if<wire::Stdout>(&*message))
                heard_.append(reinterpret_cast<const char*>(out->bytes.data()), out->bytes.size());
            if (const auto* exit = std::get_if<wire::Exit>(&*message)) exit_ = *exit;
        }
    }
    template <class M>
    void say(const sys::UniqueFd& client, const M& message)
    {
        const auto frame = wire::encode(message).value();
        ASSERT_EQ(send(client.get(), frame.data(), frame.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(frame.size()));
    }
    TerminalRelay::Attached attach(std::optional<std::uint64_t> from = std::nullopt)
    {
        heard_.clear();
        decoder_ = wire::FrameDecoder(wire::Port::session, wire::Direction::to_host,
                                      wire::Stage::later);
        return VALUE(relay_->attach(from));
    }

    Loop loop_;
    sys::UniqueFd program_;
    std::unique_ptr<TerminalRelay> relay_;
    std::vector<int> signals_;
    int changes_ = 0;
    std::string heard_;
    std::optional<wire::Exit> exit_;
    bool ended_ = false;
    wire::FrameDecoder decoder_{wire::Port::session, wire::Direction::to_host, wire::Stage::later};
};

TEST_F(Relayed, GivesAnAttachmentWhatWasWrittenBeforeAndAfter)
{
    write_all("before ");
    until([&] { return relay_->bytes() == 7; });
    const auto attached = attach();
    EXPECT_EQ(attached.offset, 0U);
    write_all("after");
    until([&] {
        hear(attached.stream);
        return heard_ == "before after";
    });
}

TEST_F(Relayed, TakesTypingSizesAndSignals)
{
    const auto attached = attach();
    say(attached.stream, wire::Stdin{{std::byte{'h'}, std::byte{'i'}}});
    say(attached.stream, wire::Resize{33, 77});
    say(attached.stream, wire::Signal{15});
    until([&] { return !signals_.empty(); });
    EXPECT_EQ(signals_, std::vector<int>{15});
    std::array<char, 8> typed{};
    EXPECT_EQ(read(program_.get(), typed.data(), typed.size()), 2);
    EXPECT_EQ(typed[0], 'h');
    winsize size{};
    EXPECT_EQ(ioctl(program_.get(), TIOCGWINSZ, &size), 0);
    EXPECT_EQ(size.ws_row, 33);
    EXPECT_EQ(size.ws_col, 77);
}

TEST_F(Relayed, GoesOnWhereTheLastClientLeft)
{
    const auto first = attach();
    write_all("one ");
    until([&] {
        hear(first.stream);
        return heard_ == "one ";
    });
    EXPECT_FALSE(relay_->attach(std::nullopt)) << "one at a time";
    shutdown(first.stream.get(), SHUT_WR);
    until([&] { return !relay_->is_attached(); });
    write_all("two ");
    until([&] { return relay_->bytes() == 8; });
    const auto second = attach();
    EXPECT_EQ(second.offset, 4U);
    until([&] {
        hear(second.stream);
        return heard_ == "two ";
    });
}

// A client that leaves has every byte that counts as its own, and not one more.
TEST_F(Relayed, NeitherLosesNorRepeatsAByteForWhoeverLeaves)
{
    std::string all;
    std::string seen;
    for (int turn = 0; turn < 20; ++turn) {
        const auto attached = attach();
        EXPECT_EQ(attached.offset, seen.size());
        std::string piece(5000, static_cast<char>('a' + turn));
        // As much as the terminal holds; it is drained in between.
        for (std::size_t at = 0; at < piece.size(); at += 1000) {
            write_all(piece.substr(at, 1000));
            all += piece.substr(at, 1000);
            if (at == 2000) shutdown(attached.stream.get(), SHUT_WR);
            until([&] { return relay_->bytes() == all.size(); });
        }
        until([&] {
            hear(attached.stream);
            return ended_;
        });
        seen += heard_;
        ASSERT_EQ(seen, all.substr(0, seen.size()));
    }
    const auto last = attach();
    until([&] {
        hear(last.stream);
        return seen.size() + heard_.size() == all.size();
    });
    EXPECT_EQ(seen + heard_, all);
}

TEST_F(Relayed, TellsTheExitBehindTheLastByte)
{
    const auto attached = attach();
    write_all("last words");
    relay_->tell_exit({wire::ExitOutcome::exited, 4});
    until([&] {
        hear(attached.stream);
        return heard_ == "last words";
    });
    EXPECT_FALSE(exit_) << "the program may still write";
    program_.reset();
    relay_->leader_gone();
    until([&] {
        hear(attached.stream);
        return exit_.has_value();
    });
    EXPECT_EQ(*exit_, (wire::Exit{wire::ExitOutcome::exited, 4}));
    until([&] { return relay_->is_drained() && !relay_->is_attached(); });
    EXPECT_TRUE(relay_->exit_was_told());
    EXPECT_GT(changes_, 0);
}

TEST_F(Relayed, WritesEverythingToTheLogWhoeverIsAttached)
{
    sys::Pipe pipe = VALUE(sys::make_pipe());
    relay_->log_into(std::move(pipe.write));
    std::string logged;
    for (int i = 0; i < 200; ++i) {
        write_all(std::string(1000, static_cast<char>('a' + i % 26)));
        until([&] { return relay_->bytes() == static_cast<std::uint64_t>(i + 1) * 1000; });
        if (i % 10 != 9) continue;  // nobody reads for a while: more than the pipe holds
        std::array<char, 65536> chunk;
        EXPECT_OK(sys::set_nonblocking(pipe.read.get()));
        until([&] {
            const ssize_t count = read(pipe.read.get(), chunk.data(), chunk.size());
            if (count > 0) logged.append(chunk.data(), static_cast<std::size_t>(count));
            return logged.size() == static_cast<std::size_t>(i + 1) * 1000;
        });
    }
    for (std::size_t i = 0; i < 200; ++i)
        ASSERT_EQ(logged.substr(i * 1000, 1000),
                  std::string(1000, static_cast<char>('a' + i % 26)));
    program_.reset();
    relay_->leader_gone();
    char more = 0;
    until([&] { return read(pipe.read.get(), &more, 1) == 0; });
    EXPECT_TRUE(relay_->is_drained());
}

TEST_F(Relayed, HoldsTheProgramUpForAClientThatDoesNotRead)
{
    const auto attached = attach();
    EXPECT_OK(sys::set_nonblocking(program_.get()));
    const std::string piece(4096, 'x');
    std::uint64_t written = 0;
    std::uint64_t before = 1;
    // Written as long as anything moves: it stops at the ring and what the kernel holds.
    while (before != written) {
        before = written;
        for (int i = 0; i < 64; ++i) {
            const ssize_t count = write(program_.get(), piece.data(), piece.size());
            if (count > 0) written += static_cast<std::uint64_t>(count);
            EXPECT_OK(loop_.after(Millis{1}, [this] { loop_.stop(); }));
            loop_.run();
        }
        ASSERT_LT(written, 16U << 20) << "nothing holds it up";
    }
    EXPECT_GE(relay_->bytes(), kRingBytes);
    until([&] {
        hear(attached.stream);
        return heard_.size() == written;
    });
}

TEST_F(Relayed, DropsAClientThatBreaksTheProtocol)
{
    const auto attached = attach();
    const std::string nonsense(64, '\xFF');
    ASSERT_EQ(send(attached.stream.get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL), 64);
    until([&] { return !relay_->is_attached(); });
    write_all("still here");
    until([&] { return relay_->bytes() == 10; });
}

TEST_F(Relayed, ARemoteTerminalIsASocketWhoseSizeIsToldAndNotSet)
{
    Terminal terminal = VALUE(make_remote_terminal());
    const auto guest = VALUE(sys::duplicate(terminal.slave.get()));
    std::vector<Window> told;
    TerminalRelay relay(loop_, std::move(terminal),
                        {[](int) {}, [] {}, [&](Window window) { told.push_back(window); }});
    EXPECT_OK(relay.begin());
    relay.set_window({40, 120});
    ASSERT_EQ(told.size(), 1U);
    EXPECT_EQ(told[0].rows, 40);
    EXPECT_EQ(told[0].cols, 120);
    ASSERT_EQ(write(guest.get(), "out", 3), 3);
    until([&] { return relay.bytes() == 3; });
}

}  // namespace
}  // namespace sandbox::shim
