// SPDX-License-Identifier: Apache-2.0
#include "supervisor/shim_client.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "../ledger/support.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::supervisor {
namespace {

using ledger::test::TempDir;

sys::Deadline soon() { return sys::Deadline::after(Millis{10'000}); }

// A shim of our making: accepts one client and says `packets`, then waits until it leaves.
class FakeShim {
public:
    FakeShim(const std::string& dir, std::vector<std::string> packets)
        : listener_(
              sys::unix_listen(dir + "/" + shim::kSocketName, sys::SocketType::seqpacket, 0600)
                  .value()),
          thread_([this, packets = std::move(packets)] {
              auto client = sys::accept_one(listener_.get());
              if (!client) return;
              for (const std::string& packet : packets) {
                  static_cast<void>(
                      send(client->get(), packet.data(), packet.size(), MSG_NOSIGNAL));
              }
              if (packets.empty()) return;
              auto asked = sys::recv_fds(client->get(), shim::kMostPacketBytes, 0);
              if (asked) heard_ = asked->bytes;
          })
    {
    }
    ~FakeShim()
    {
        if (thread_.joinable()) thread_.join();
    }
    FakeShim(const FakeShim&) = delete;
    FakeShim& operator=(const FakeShim&) = delete;
    std::string heard()
    {
        thread_.join();
        return heard_;
    }

private:
    sys::UniqueFd listener_;
    std::string heard_;
    std::thread thread_;
};

std::string greeting()
{
    return shim::encode(shim::Reply(shim::Greeting{1, {"wait"}, "id"})).value();
}

TEST(ShimConnection, OpensOnAGreetingAndSendsRequests)
{
    const TempDir dir;
    FakeShim fake(dir.path(), {greeting(), shim::encode(shim::Reply(shim::Accepted{})).value()});
    auto connection = ShimConnection::open(dir.path());
    ASSERT_TRUE(connection) << connection.error().message();
    EXPECT_EQ(VALUE(connection->receive(soon())), shim::Reply(shim::Accepted{}));
    EXPECT_OK(connection->send(shim::StopRequest{5}));
    EXPECT_EQ(VALUE(shim::decode_control_request(fake.heard())),
              shim::Request(shim::StopRequest{5}));
    EXPECT_FALSE(VALUE(connection->receive(soon()))) << "the shim is gone";
}

TEST(ShimConnection, RefusesAShimThatSaysAnythingElseFirst)
{
    for (const std::string& first : {std::string("rubbish"), std::string("{\"is\":\"greeting\"}"),
                                     shim::encode(shim::Reply(shim::Accepted{})).value(),
                                     std::string(shim::kMostPacketBytes + 1, ' ')}) {
        const TempDir dir;
        FakeShim fake(dir.path(), {first});
        EXPECT_FALSE(ShimConnection::open(dir.path())) << first.substr(0, 40);
    }
}

TEST(ShimConnection, CallsAShimThatClosesAtOnceUnavailable)
{
    const TempDir dir;
    FakeShim fake(dir.path(), {});
    EXPECT_CODE(ShimConnection::open(dir.path()), Code::unavailable);
}

TEST(ShimConnection, IsNotFoundWithoutAFolderASocketOrAListener)
{
    const TempDir dir;
    EXPECT_CODE(ShimConnection::open(dir.file("none")), Code::not_found);
    EXPECT_CODE(ShimConnection::open(dir.path()), Code::not_found);
    // What a shim that was killed leaves behind.
    VALUE(sys::unix_listen(dir.file(shim::kSocketName), sys::SocketType::seqpacket, 0600)).reset();
    EXPECT_CODE(ShimConnection::open(dir.path()), Code::not_found);
}

TEST(ShimConnection, GivesUpOnASilentShimAtTheDeadline)
{
    auto pair = VALUE(sys::socket_pair(sys::SocketType::seqpacket));
    ShimConnection connection(std::move(pair.first));
    EXPECT_CODE(connection.receive(sys::Deadline::after(Millis{20})), Code::deadline_exceeded);
    EXPECT_OK(
        sys::send_fds(pair.second.get(), shim::encode(shim::Reply(shim::Running{7})).value(), {}));
    EXPECT_EQ(VALUE(connection.receive(soon())), shim::Reply(shim::Running{7}))
        << "late, but not lost";
}

TEST(ShimConnection, ReportsGarbageWithoutLosingTheNextPacket)
{
    auto pair = VALUE(sys::socket_pair(sys::SocketType::seqpacket));
    ShimConnection connection(std::move(pair.first));
    EXPECT_OK(sys::send_fds(pair.second.get(), "garbage", {}));
    EXPECT_OK(
        sys::send_fds(pair.second.get(), shim::encode(shim::Reply(shim::Running{7})).value(), {}));
    EXPECT_CODE(connection.receive(soon()), Code::corrupt);
    EXPECT_EQ(VALUE(connection.receive(soon())), shim::Reply(shim::Running{7}));
}

TEST(ShimConnection, TakesNoDescriptorFromAShim)
{
    auto pair = VALUE(sys::socket_pair(sys::SocketType::seqpacket));
    ShimConnection connection(std::move(pair.first));
    const std::array<int, 1> fds{pair.second.get()};
    EXPECT_OK(sys::send_fds(pair.second.get(), "{}", fds));
    EXPECT_CODE(connection.receive(soon()), Code::corrupt);
}

TEST(Submit, HandsOverASealedRequestFirstAndTheClientsDescriptorsBehindIt)
{
    auto pair = VALUE(sys::socket_pair(sys::SocketType::seqpacket));
    ShimConnection connection(std::move(pair.first));
    const sys::Pipe pipe = VALUE(sys::make_pipe());
    shim::LaunchRequest request;
    request.plan_file = std::string(300'000, 'p');  // larger than a packet may be
    request.binding.id = ledger::test::id(1);
    const std::array<int, 2> fds{pipe.read.get(), pipe.write.get()};
    EXPECT_OK(submit(connection, request, fds));
    auto packet = VALUE(sys::recv_fds(pair.second.get(), 16, 4));
    ASSERT_EQ(packet.fds.size(), 3U);
    EXPECT_TRUE(VALUE(sys::is_sealed(packet.fds[0].get())));
    const std::string text = VALUE(sys::read_file(sys::fd_path(packet.fds[0].get()), 1U << 20));
    EXPECT_EQ(VALUE(shim::decode_request(text)), request);
    EXPECT_EQ(VALUE(sys::identity_of_fd(packet.fds[1].get())),
              VALUE(sys::identity_of_fd(pipe.read.get())));
    EXPECT_EQ(VALUE(sys::identity_of_fd(packet.fds[2].get())),
              VALUE(sys::identity_of_fd(pipe.write.get())));
}

TEST(Release, SaysGoInAPacketOfItsOwn)
{
    auto pair = VALUE(sys::socket_pair(sys::SocketType::seqpacket));
    ShimConnection connection(std::move(pair.first));
    EXPECT_OK(release(connection));
    const auto packet = VALUE(sys::recv_fds(pair.second.get(), 16, 0));
    EXPECT_EQ(packet.bytes, shim::kGo);
    EXPECT_TRUE(packet.fds.empty());
}

TEST(StartShim, WithoutTheProgramGivesAConnectionThatEnds)
{
    Host host;
    host.probing.shim.path = "/nonexistent/sandbox-shim";
    auto shim = start_shim(host, ledger::test::id(1));
    ASSERT_TRUE(shim) << shim.error().message();
    EXPECT_FALSE(VALUE(shim->connection.receive(soon())));
    const auto status = VALUE(shim->process.wait_exit(soon()));
    ASSERT_TRUE(status);
    EXPECT_EQ(status->code, 127);
}

}  // namespace
}  // namespace sandbox::supervisor
