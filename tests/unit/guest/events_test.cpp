// SPDX-License-Identifier: Apache-2.0
#include <sys/socket.h>

#include <array>

#include "init_fixture.hpp"

namespace sandbox::guest::test {
namespace {

class GuestEventStream : public InitTest {
protected:
    void begin(std::uint32_t heartbeat_ms)
    {
        wire::Bootstrap boot = record();
        boot.heartbeat_ms = heartbeat_ms;
        start(boot);
        control_ = std::make_unique<Peer>(stream(wire::Port::control, ""));
        control_->send(wire::Hello{});
        ASSERT_TRUE(control_->control<wire::Welcome>());
        wire::Provision provision;
        provision.event_nonce.fill(7);
        control_->send(provision);
        ASSERT_TRUE(control_->control<wire::Provisioned>());
        control_->send(wire::Ready{1});
        ASSERT_TRUE(control_->control<wire::ReadyAck>());
    }
    template <class M>
    static std::optional<M> next(Peer& peer)
    {
        return peer.expect<M, wire::EventMessage>();
    }
};

}  // namespace

TEST_F(GuestEventStream, OpensWithTheNonceAndBeatsInSilence)
{
    begin(20);
    Peer events = stream(wire::Port::events, "");
    const auto auth = next<wire::EventAuth>(events);
    ASSERT_TRUE(auth);
    EXPECT_EQ(auth->version, wire::kProtocolVersion);
    wire::Nonce nonce{};
    nonce.fill(7);
    EXPECT_EQ(auth->nonce, nonce);
    std::uint64_t uptime = 0;
    for (std::uint64_t sequence = 1; sequence <= 4; ++sequence) {
        const auto beat = next<wire::Heartbeat>(events);
        ASSERT_TRUE(beat);
        EXPECT_EQ(beat->seq, sequence);
        EXPECT_GE(beat->uptime_ms, sequence > 1 ? uptime + 20 : 0);
        uptime = beat->uptime_ms;
    }
}

TEST_F(GuestEventStream, TellsWhatTheServiceDoes)
{
    begin(60'000);
    Peer events = stream(wire::Port::events, "");
    ASSERT_TRUE(next<wire::EventAuth>(events));
    ASSERT_TRUE(next<wire::Heartbeat>(events));
    wire::Open open = shell("kill -9 $$");
    open.kind = wire::SessionKind::service;
    EXPECT_EQ(run(open).exit.value, 9);
    std::uint64_t sequence = 1;
    std::optional<wire::ServiceStateEvent> told;
    do {
        told = next<wire::ServiceStateEvent>(events);
        ASSERT_TRUE(told);
        EXPECT_EQ(told->seq, ++sequence);
    } while (told->state != wire::ServiceState::exited);
    EXPECT_EQ(told->exit, -9);
}

TEST_F(GuestEventStream, GoesOnCountingWithARotatedNonce)
{
    begin(60'000);
    Peer first = stream(wire::Port::events, "");
    ASSERT_TRUE(next<wire::EventAuth>(first));
    EXPECT_EQ(next<wire::Heartbeat>(first)->seq, 1U);
    wire::Rotate rotate;
    rotate.kind = wire::RotateKind::event_nonce;
    rotate.value = wire::ByteVector(wire::kNonceSize, std::byte{9});
    control_->send(rotate);
    ASSERT_TRUE(control_->control<wire::Rotated>());
    Peer second = stream(wire::Port::events, "");
    const auto auth = next<wire::EventAuth>(second);
    ASSERT_TRUE(auth);
    wire::Nonce nonce{};
    nonce.fill(9);
    EXPECT_EQ(auth->nonce, nonce);
    EXPECT_EQ(next<wire::Heartbeat>(second)->seq, 2U);
    EXPECT_TRUE(first.at_end());
}

TEST_F(GuestEventStream, OutlivesAHostThatTalksBackOrDoesNotListen)
{
    begin(1);
    Peer talker = stream(wire::Port::events, "");
    talker.send_text("what?");
    expect_serving();
    Peer deaf = stream(wire::Port::events, "");
    expect_serving();
    deaf.close();
    expect_serving();
}

TEST_F(GuestEventStream, SaysNothingBeforeProvision)
{
    start(record());
    Peer events = stream(wire::Port::events, "");
    std::array<std::byte, 64> answer{};
    ASSERT_GT(::recv(events.fd(), answer.data(), answer.size(), 0), 7);
    EXPECT_EQ(answer[4], std::byte{wire::ErrorMessage::kType});
    EXPECT_EQ(answer[6], std::byte{6});  // not_provisioned
}

}  // namespace sandbox::guest::test
