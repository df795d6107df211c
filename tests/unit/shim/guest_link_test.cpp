// SPDX-License-Identifier: Apache-2.0
#include "shim/guest_link.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <thread>

#include "../resolve/world.hpp"
#include "canon/canon.hpp"
#include "support.hpp"
#include "sys/file.hpp"
#include "sys/net/unix.hpp"

namespace sandbox::shim {
namespace {

sys::Deadline soon() { return sys::Deadline::after(Millis{10'000}); }

// The other end of a stream: a sandbox-init of our making.
template <class Messages>
class Guest {
public:
    explicit Guest(sys::UniqueFd fd, wire::Stage stage = wire::Stage::first)
        : fd_(std::move(fd)), decoder_(wire::kPortOf<Messages>, wire::Direction::to_guest, stage)
    {
    }

    template <class M>
    void say(const M& message)
    {
        const auto frame = VALUE(wire::encode(message));
        EXPECT_EQ(send(fd_.get(), frame.data(), frame.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(frame.size()));
    }
    // The next message from the shim when it is an M.
    template <class M>
    std::optional<M> hear()
    {
        while (true) {
            auto frame = decoder_.next(unread_);
            if (!frame) return std::nullopt;
            if (*frame) {
                auto message = wire::decode_as<Messages>(wire::Direction::to_guest, (*frame)->type,
                                                         (*frame)->payload);
                if (!message || !std::holds_alternative<M>(*message)) return std::nullopt;
                return std::get<M>(*std::move(message));
            }
            auto packet = sys::recv_fds(fd_.get(), bytes_.size(), 3);
            if (!packet || packet->bytes.empty()) return std::nullopt;
            for (auto& fd : packet->fds) fds.push_back(std::move(fd));
            std::copy(packet->bytes.begin(), packet->bytes.end(),
                      reinterpret_cast<char*>(bytes_.data()));
            unread_ = std::span<const std::byte>(bytes_).first(packet->bytes.size());
        }
    }
    void leave() { fd_.reset(); }

    std::vector<sys::UniqueFd> fds;

private:
    sys::UniqueFd fd_;
    wire::FrameDecoder decoder_;
    std::array<std::byte, 4096> bytes_{};
    std::span<const std::byte> unread_;
};
using ControlGuest = Guest<wire::ControlMessage>;
using SessionGuest = Guest<wire::SessionMessage>;

driver::Binding binding()
{
    auto binding = test::request_below("/tmp").binding;
    binding.generation = 3;
    return binding;
}

plan::ExecutionPlan plan() { return resolve::test::planned(resolve::test::full()); }

// Runs `guest` beside the shim's handshake.
template <class Play>
Result<Handshake> shake(Play play, sys::Deadline deadline = soon())
{
    auto pair = VALUE(sys::socket_pair(sys::SocketType::stream));
    ControlStream stream(std::move(pair.first));
    std::thread thread([&] {
        ControlGuest guest(std::move(pair.second));
        play(guest);
    });
    auto result = handshake(stream, binding(), plan(), "/nonexistent", deadline);
    static_cast<void>(stream.release());
    thread.join();
    return result;
}

TEST(Handshake, SaysHelloProvisionReadyInThisOrderAndOnlyOnEachReply)
{
    std::optional<wire::Hello> hello;
    std::optional<wire::Provision> provision;
    std::optional<wire::Ready> ready;
    const auto welcome = shake([&](ControlGuest& guest) {
        hello = guest.hear<wire::Hello>();
        wire::Welcome reply;
        reply.agent_version = "test";
        guest.say(reply);
        provision = guest.hear<wire::Provision>();
        guest.say(wire::Provisioned{});
        ready = guest.hear<wire::Ready>();
        guest.say(wire::ReadyAck{});
    });
    ASSERT_TRUE(welcome) << welcome.error().message();
    EXPECT_EQ(welcome->welcome.agent_version, "test");
    ASSERT_TRUE(hello && provision && ready);
    wire::Id16 id{};
    id.back() = 1;
    EXPECT_EQ(hello->instance_id, id);
    EXPECT_EQ(provision->hostname, plan()->network.hostname);
    EXPECT_NE(provision->event_nonce, wire::Nonce{});
    EXPECT_NE(provision->event_nonce, provision->egress_token);
    EXPECT_NE(provision->egress_token, provision->service_token);
    EXPECT_EQ(ready->policy_generation, 3U);
}

TEST(Rotation, GivesTheGuestANonceAndKeepsItOnlyOnItsWord)
{
    const auto rotated = [](auto reply) {
        auto pair = VALUE(sys::socket_pair(sys::SocketType::stream));
        ControlStream stream(std::move(pair.first));
        std::optional<wire::Rotate> heard;
        std::thread thread([&] {
            ControlGuest guest(std::move(pair.second), wire::Stage::later);
            heard = guest.hear<wire::Rotate>();
            guest.say(reply);
        });
        auto nonce = rotate_event_nonce(stream, soon());
        thread.join();
        return std::pair(std::move(nonce), std::move(heard));
    };
    const auto [nonce, heard] = rotated(wire::Rotated{wire::RotateKind::event_nonce});
    ASSERT_TRUE(nonce) << nonce.error().message();
    ASSERT_TRUE(heard);
    EXPECT_EQ(heard->kind, wire::RotateKind::event_nonce);
    const auto sent = std::as_bytes(std::span(*nonce));
    EXPECT_TRUE(std::ranges::equal(heard->value, sent));
    EXPECT_NE(*nonce, wire::Nonce{});
    EXPECT_FALSE(rotated(wire::Rotated{wire::RotateKind::egress_token}).first);
    EXPECT_FALSE(rotated(wire::ErrorMessage{2, "no"}).first);
}

TEST(Handshake, NeverUsesANonceTwice)
{
    std::vector<wire::Nonce> seen;
    for (int i = 0; i < 2; ++i) {
        static_cast<void>(shake([&](ControlGuest& guest) {
            static_cast<void>(guest.hear<wire::Hello>());
            guest.say(wire::Welcome{});
            if (const auto p = guest.hear<wire::Provision>()) seen.push_back(p->event_nonce);
        }));
    }
    ASSERT_EQ(seen.size(), 2U);
    EXPECT_NE(seen[0], seen[1]);
}

TEST(Handshake, FailsWhereverAnErrorAWrongReplyOrTheEndComes)
{
    const auto at_step = [](int step, auto misbehave) {
        return shake([=](ControlGuest& guest) {
            static_cast<void>(guest.hear<wire::Hello>());
            if (step == 0) return misbehave(guest);
            guest.say(wire::Welcome{});
            static_cast<void>(guest.hear<wire::Provision>());
            if (step == 1) return misbehave(guest);
            guest.say(wire::Provisioned{});
            static_cast<void>(guest.hear<wire::Ready>());
            misbehave(guest);
        });
    };
    for (int step = 0; step < 3; ++step) {
        const auto refused = at_step(step, [](ControlGuest& g) {
            g.say(wire::ErrorMessage{static_cast<std::uint16_t>(wire::WireError::refused), "no"});
        });
        ASSERT_FALSE(refused) << step;
        EXPECT_EQ(refused.error().code(), Code::denied) << step;
        const auto other = at_step(step, [](ControlGuest& g) { g.say(wire::TimeAck{}); });
        ASSERT_FALSE(other) << step;
        EXPECT_EQ(other.error().code(), Code::corrupt) << step;
        const auto gone = at_step(step, [](ControlGuest& g) { g.leave(); });
        ASSERT_FALSE(gone) << step;
        EXPECT_EQ(gone.error().code(), Code::unavailable) << step;
    }
}

TEST(Handshake, GivesUpOnASilentGuestAtTheDeadline)
{
    auto pair = VALUE(sys::socket_pair(sys::SocketType::stream));
    ControlStream stream(std::move(pair.first));
    const auto result = handshake(stream, binding(), plan(), "/nonexistent",
                                  sys::Deadline::after(Millis{20}));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), Code::deadline_exceeded);
}

struct Service {
    Service() : Service(sys::socket_pair(sys::SocketType::stream).value()) {}
    explicit Service(sys::SocketPair pair)
        : stream(std::move(pair.first)), guest(std::move(pair.second))
    {
    }
    Result<wire::Confined> open(sys::Deadline deadline = soon())
    {
        return open_service(stream, plan()->process,
                            {pipe.read.get(), pipe.write.get(), pipe.write.get()}, deadline);
    }
    sys::Pipe pipe = sys::make_pipe().value();
    SessionStream stream;
    SessionGuest guest;
};

TEST(OpenService, SendsThePlansProcessGatedWithItsThreeDescriptors)
{
    Service s;
    wire::Confined confined;
    confined.pid = 2;
    s.guest.say(confined);
    const auto report = s.open();
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_EQ(report->pid, 2U);
    const auto open = s.guest.hear<wire::Open>();
    ASSERT_TRUE(open);
    const auto process = plan()->process;
    EXPECT_EQ(open->kind, wire::SessionKind::service);
    EXPECT_EQ(open->argv, process.argv);
    EXPECT_EQ(open->uid, process.uid);
    EXPECT_EQ(open->gid, process.gid);
    EXPECT_TRUE(open->groups.empty());
    EXPECT_EQ(open->cwd, process.cwd.str());
    EXPECT_EQ(open->umask, process.umask);
    EXPECT_TRUE(open->gate) << "nothing may run before the evidence was judged";
    EXPECT_EQ(open->stdio, wire::SessionStdio::descriptors);
    EXPECT_EQ(open->timeout_ms, 0U) << "time-outs are the shim's";
    EXPECT_EQ(std::vector<wire::EnvPair>(process.env.begin(), process.env.end()), open->env);
    ASSERT_EQ(open->rlimits.size(), process.rlimits.size());
    const auto nofile = std::find_if(open->rlimits.begin(), open->rlimits.end(),
                                     [](const auto& l) { return l.resource == RLIMIT_NOFILE; });
    ASSERT_NE(nofile, open->rlimits.end());
    EXPECT_EQ(nofile->value, 1024U);
    ASSERT_EQ(s.guest.fds.size(), 3U);
    EXPECT_EQ(VALUE(sys::identity_of_fd(s.guest.fds[0].get())),
              VALUE(sys::identity_of_fd(s.pipe.read.get())));
}

TEST(OpenService, FailsOnErrorExitOtherMessagesTheEndAndSilence)
{
    Service refused;
    refused.guest.say(
        wire::ErrorMessage{static_cast<std::uint16_t>(wire::WireError::refused), "no"});
    EXPECT_CODE(refused.open(), Code::denied);

    Service exit;
    exit.guest.say(wire::Exit{wire::ExitOutcome::failed_to_start, EACCES});
    const auto result = exit.open();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().errnum(), EACCES);

    Service started;
    started.guest.say(wire::Started{2});
    EXPECT_CODE(started.open(), Code::corrupt);

    Service gone;
    EXPECT_EQ(shutdown(gone.stream.fd(), SHUT_RD), 0);
    EXPECT_CODE(gone.open(), Code::unavailable);

    Service silent;
    EXPECT_CODE(silent.open(sys::Deadline::after(Millis{20})), Code::deadline_exceeded);
}

TEST(AwaitStart, TellsStartedFromAProgramThatCannotBeExecuted)
{
    Service started;
    started.guest.say(wire::Started{5});
    EXPECT_EQ(std::get<wire::Started>(VALUE(await_start(started.stream, soon()))).pid, 5U);

    Service missing;
    missing.guest.say(wire::Exit{wire::ExitOutcome::failed_to_start, ENOENT});
    EXPECT_EQ(std::get<StartFailure>(VALUE(await_start(missing.stream, soon()))).errnum, ENOENT);

    Service other;
    other.guest.say(wire::Silent{});
    EXPECT_CODE(await_start(other.stream, soon()), Code::corrupt);
}

TEST(PassingStreams, HandsOverTheStreamFirstAndThenTheLeaf)
{
    auto channel = VALUE(sys::socket_pair(sys::SocketType::seqpacket));
    driver::SessionLeaf leaf;
    leaf.name = "s1";
    std::vector<sys::FileIdentity> joins;
    for (int i = 0; i < 2; ++i) {
        leaf.joins.push_back(VALUE(sys::make_memfd("leaf")));
        joins.push_back(VALUE(sys::identity_of_fd(leaf.joins.back().get())));
    }
    const auto ours = VALUE(open_session(channel.first.get(), plan::CgroupVersion::v1, leaf));
    auto packet = VALUE(sys::recv_fds(channel.second.get(), wire::kMaxInitPacket, sys::kMaxFds));
    const auto message = wire::decode_packet(wire::Direction::to_guest,
                                             std::as_bytes(std::span(packet.bytes)));
    ASSERT_TRUE(message);
    const auto& pass = std::get<wire::Pass>(*message);
    EXPECT_EQ(pass.port, 5001U);
    EXPECT_EQ(pass.session, "s1");
    EXPECT_EQ(pass.leaf, wire::LeafKind::v1_tasks);
    EXPECT_EQ(pass.leaf_count, 2);
    ASSERT_EQ(packet.fds.size(), 3U);
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(VALUE(sys::identity_of_fd(packet.fds[i + 1].get())), joins[i]);
    }
    ASSERT_EQ(send(packet.fds[0].get(), "x", 1, 0), 1);
    char c = 0;
    EXPECT_EQ(recv(ours.get(), &c, 1, 0), 1);
}

TEST(PassingStreams, HandsOverTheControlPortWithoutALeaf)
{
    auto channel = VALUE(sys::socket_pair(sys::SocketType::seqpacket));
    EXPECT_OK(open_port(channel.first.get(), wire::Port::control));
    auto packet = VALUE(sys::recv_fds(channel.second.get(), wire::kMaxInitPacket, sys::kMaxFds));
    const auto message = wire::decode_packet(wire::Direction::to_guest,
                                             std::as_bytes(std::span(packet.bytes)));
    ASSERT_TRUE(message);
    EXPECT_EQ(std::get<wire::Pass>(*message).port, 5000U);
    EXPECT_EQ(std::get<wire::Pass>(*message).leaf, wire::LeafKind::none);
    EXPECT_EQ(packet.fds.size(), 1U);
}

TEST(PassingStreams, ReportsAnInitThatIsGone)
{
    auto channel = VALUE(sys::socket_pair(sys::SocketType::seqpacket));
    channel.second.reset();
    EXPECT_FALSE(open_port(channel.first.get(), wire::Port::control));
}

}  // namespace
}  // namespace sandbox::shim
