// SPDX-License-Identifier: Apache-2.0
#include "relay_fixture.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::guest::test {
namespace {

constexpr int kSocketFd = 5;
constexpr Millis kRelayPatience{20'000};  // a machine under load

[[noreturn]] void become_guest(int socket)
{
    const int high = ::fcntl(socket, F_DUPFD, 64);
    ::dup2(high, kSocketFd);
    ::close_range(3, kSocketFd - 1, 0);
    ::close_range(kSocketFd + 1, ~0U, 0);
    ::execl(SANDBOX_INIT_PATH, SANDBOX_INIT_PATH, nullptr);
    ::_exit(125);
}

}  // namespace

void RelayTest::TearDown()
{
    port_.reset();
    InitTest::TearDown();
    if (relay_) relay_end();
}

wire::Bootstrap RelayTest::machine_record()
{
    wire::Bootstrap boot = record();
    boot.mode = wire::BootMode::microvm;
    boot.channel = wire::BootChannel::virtio_serial;
    boot.channel_fd = 0;
    return boot;
}

void RelayTest::fork_relay(sys::UniqueFd port, const wire::Bootstrap& boot,
                           const wire::Machine& machine)
{
    auto pair = sys::socket_pair(sys::SocketType::seqpacket);
    ASSERT_TRUE(pair);
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
        pair->first.reset();
        port_.reset();
        const auto end = channel::run_mux_relay({std::move(pair->second), std::move(port)}, boot,
                                                machine);
        ::_exit(static_cast<int>(end));
    }
    relay_.emplace(*sys::Pidfd::open(pid));
    channel_ = std::move(pair->first);
}

void RelayTest::start_relay(const wire::Bootstrap& boot)
{
    auto port = sys::socket_pair(sys::SocketType::stream);
    ASSERT_TRUE(port);
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) become_guest(port->second.get());
    init_.emplace(*sys::Pidfd::open(pid));
    port->second.reset();
    fork_relay(std::move(port->first), boot);
    const auto up = told<wire::InitUp>();
    ASSERT_TRUE(up);
    EXPECT_EQ(up->pid, static_cast<std::uint32_t>(pid));
}

void RelayTest::start_relay_ready()
{
    start_relay(machine_record());
    control_ = std::make_unique<Peer>(stream(wire::Port::control, ""));
    ASSERT_EQ(bring_up(*control_), "");
}

void RelayTest::start_lonely_relay()
{
    auto port = sys::socket_pair(sys::SocketType::stream);
    ASSERT_TRUE(port);
    port_ = std::move(port->second);
    fork_relay(std::move(port->first), machine_record());
}

std::optional<wire::InitMessage> RelayTest::next_packet()
{
    const auto ready = sys::poll_one(channel_.get(), POLLIN, sys::Deadline::after(kRelayPatience));
    if (!ready || *ready == 0) return std::nullopt;
    const auto packet = sys::recv_fds(channel_.get(), wire::kMaxInitPacket, 0);
    if (!packet || packet->bytes.empty()) return std::nullopt;
    auto message = wire::decode_packet(wire::Direction::to_host,
                                       std::as_bytes(std::span(packet->bytes)));
    if (!message) return std::nullopt;
    return std::move(*message);
}

channel::MuxRelayEnd RelayTest::relay_end()
{
    const auto status = relay_->wait_exit(sys::Deadline::after(kRelayPatience));
    if (!status || !*status) {
        ADD_FAILURE() << "the relay did not end";
        [[maybe_unused]] const auto sent = relay_->send_signal(SIGKILL);
        ::waitpid(relay_->pid(), nullptr, 0);
        relay_.reset();
        return channel::MuxRelayEnd::failed;
    }
    relay_.reset();
    return static_cast<channel::MuxRelayEnd>((*status)->code);
}

}  // namespace sandbox::guest::test
