// SPDX-License-Identifier: Apache-2.0
#include <ctime>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "machine_fixture.hpp"

namespace sandbox::guest::test {
namespace {

std::int64_t clock_ns()
{
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

constexpr std::int64_t kClockTolerance = 50'000'000;  // 50 ms

}  // namespace

TEST_F(MachineTest, BootsToInitUpWithoutATreeAndPowersOff)
{
    boot_ready({});
    EXPECT_NE(reported().find("kernel.release="), std::string::npos);
    control_->send(wire::Poweroff{wire::PoweroffReason::stop});
    EXPECT_TRUE(control_->control<wire::PoweroffAck>());
    EXPECT_EQ(relay_end(), channel::MuxRelayEnd::guest_gone);
    EXPECT_TRUE(machine_gone());
}

TEST_F(MachineTest, RunsSessionsInATreeOfItsShares)
{
    boot_ready(usual_machine(), {"/", ""});
    if (HasFatalFailure()) return;
    const Ran ran = run_shell("cat /etc/hostname; id -u; ls /; uname -r; exit 3");
    EXPECT_EQ(ran.trouble, "");
    EXPECT_EQ(ran.exit, (wire::Exit{wire::ExitOutcome::exited, 3}))
        << ran.err << (ran.error ? ran.error->detail : "") << console_ << last_words();
    EXPECT_TRUE(ran.out.starts_with("guest\n65534\nbin\ndev\netc\n")) << ran.out;
    EXPECT_NE(reported().find("cgroup.memory.max=50331648\n"), std::string::npos) << reported();
    EXPECT_NE(reported().find("cgroup.pids.max=64\n"), std::string::npos);
    EXPECT_NE(reported().find("mount:/usr=virtiofs ro,nosuid,nodev"), std::string::npos);
    EXPECT_NE(reported().find("mount:/=tmpfs ro,nosuid,nodev"), std::string::npos);

    const Ran written = run_shell("echo x > /usr/x; echo y > /x; echo 0 > /proc/sys/kernel/panic; "
                                  "cat /proc/keys; echo z > /tmp/z && cat /tmp/z");
    EXPECT_EQ(written.out, "z\n") << "a mask is empty, and only /tmp is writable";
    EXPECT_EQ(written.exit, (wire::Exit{wire::ExitOutcome::exited, 0}));

    const Ran pair = run_shell("echo one & echo two; wait");
    EXPECT_EQ(pair.exit, (wire::Exit{wire::ExitOutcome::exited, 0}));
}

TEST_F(MachineTest, AMemoryHogTakesItsSessionAndNothingElse)
{
    boot_ready(usual_machine(), {"/", ""});
    if (HasFatalFailure()) return;
    Peer events = stream(wire::Port::events, "");
    ASSERT_TRUE((events.expect<wire::EventAuth, wire::EventMessage>()));
    // Beyond the guest's limit of all sessions in a few doublings.
    const Ran hog = run_shell("x=12345678; while :; do x=$x$x; done");
    EXPECT_EQ(hog.trouble, "");
    EXPECT_EQ(hog.exit, (wire::Exit{wire::ExitOutcome::signaled, SIGKILL}));
    std::optional<wire::GuestStateEvent> killed;
    for (int i = 0; i < 8 && !killed; ++i) {
        const auto message = events.message<wire::EventMessage>();
        ASSERT_TRUE(message);
        const auto* state = std::get_if<wire::GuestStateEvent>(&*message);
        if (state != nullptr && state->kind == wire::GuestEvent::oom_kill) killed = *state;
    }
    ASSERT_TRUE(killed);
    EXPECT_EQ(killed->value, 1U);
    expect_serving();
}

TEST_F(MachineTest, WhatASessionLeavesBehindEndsWithIt)
{
    boot_ready(usual_machine(), {"/", ""});
    if (HasFatalFailure()) return;
    const Ran left = run_shell("setsid sleep 1000 >/dev/null 2>&1 & echo $!");
    ASSERT_EQ(left.exit, (wire::Exit{wire::ExitOutcome::exited, 0}));
    const std::string pid = left.out.substr(0, left.out.find('\n'));
    Ran seen;
    for (int i = 0; i < 50; ++i) {
        seen = run_shell("test -e /proc/" + pid + " && echo there");
        if (seen.out.empty()) break;
    }
    EXPECT_EQ(seen.out, "") << "the leaf of its session is gone";
}

TEST_F(MachineTest, ATerminalIsMadeInside)
{
    boot_ready(usual_machine(), {"/", ""});
    if (HasFatalFailure()) return;
    Peer peer = stream(wire::Port::session);
    wire::Open open = shell("stty size; read line; echo got $line; tty; exit 5");
    open.kind = wire::SessionKind::pty;
    open.rows = 30;
    open.cols = 100;
    peer.send(open);
    ASSERT_TRUE(peer.session<wire::Confined>());
    peer.send(wire::Stdin{{std::byte{'h'}, std::byte{'i'}, std::byte{'\n'}}});
    const Ran ran = collect(peer);
    EXPECT_NE(ran.out.find("30 100\r\n"), std::string::npos) << ran.out;
    EXPECT_NE(ran.out.find("got hi\r\n/dev/pts/0\r\n"), std::string::npos) << ran.out;
    EXPECT_EQ(ran.exit, (wire::Exit{wire::ExitOutcome::exited, 5}));
}

TEST_F(MachineTest, APortOfANameOfItsOwnIsAllThatLeadsOut)
{
    boot_ready(usual_machine(), {"/", ""});
    if (HasFatalFailure()) return;
    const Ran ran = run_shell("ls /sys /dev/vport0p1 /shares /modules /init 2>/dev/null; "
                              "cat /proc/net/dev | grep -v lo: | tail -n +3; "
                              "cat /proc/1/root/init 2>/dev/null | head -c 4; "
                              "kill -9 1 2>/dev/null && echo killed; echo end");
    EXPECT_EQ(ran.out, "end\n");
    const Ran root = run_shell("cat /proc/self/uid_map; grep -E 'Cap|NoNewPrivs|Seccomp:' "
                               "/proc/self/status | tr -s '\\t ' ' '");
    EXPECT_EQ(root.out.substr(0, root.out.find('\n')), "         0          0      65536");
    EXPECT_NE(root.out.find("CapEff: 0000000000000000"), std::string::npos) << root.out;
    EXPECT_NE(root.out.find("NoNewPrivs: 1\nSeccomp: 2"), std::string::npos) << root.out;
}

TEST_F(MachineTest, KeepsTheHostsTime)
{
    boot_ready({});
    if (HasFatalFailure()) return;
    for (int i = 0; i < 3; ++i) {
        control_->send(wire::TimeSet{static_cast<std::uint64_t>(clock_ns())});
        const auto ack = control_->control<wire::TimeAck>();
        ASSERT_TRUE(ack);
        EXPECT_LT(std::abs(ack->offset_ns), kClockTolerance) << ack->offset_ns;
    }
}

TEST_F(MachineTest, AHostThatGoesTakesTheGuestAlong)
{
    boot_ready({});
    if (HasFatalFailure()) return;
    control_.reset();
    channel_.reset();
    EXPECT_EQ(relay_end(), channel::MuxRelayEnd::shim_gone);
    EXPECT_TRUE(machine_gone()) << console_;
}

}  // namespace sandbox::guest::test
