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
    EXPECT_NE(reported().find("cgroup.memory.max=100663296\n"), std::string::npos) << reported();
    EXPECT_NE(reported().find("cgroup.pids.max=64\n"), std::string::npos);
    EXPECT_NE(reported().find("mount:/usr=virtiofs ro,nosuid,nodev"), std::string::npos);
    EXPECT_NE(reported().find("mount:/=tmpfs ro,nosuid,nodev"), std::string::npos);

    const Ran written = run_shell("echo x > /usr/x; echo y > /x; echo 0 > /proc/sys/kernel/panic; "
                                  "cat /proc/keys; echo z > /tmp/z && cat /tmp/z");
    EXPECT_EQ(written.out, "z\n") << "a mask is empty, and only /tmp is writable";
    EXPECT_EQ(written.exit, (wire::Exit{wire::ExitOutcome::exited, 0}));

    const Ran hog = run_shell("head -c 200m /dev/zero | tail | wc -c");
    EXPECT_EQ(hog.trouble, "");
    expect_serving();
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
