// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "child.hpp"
#include "sys/cgroup/cgroup.hpp"
#include "sys/fd.hpp"
#include "sys/process.hpp"

// Limits, counts and kills where cgroup v2 holds every controller (dev/testhost). Elsewhere only
// the ways in and out can be tried: cgroup_test.cpp.
namespace sandbox::sys::cgroup {

namespace {

const std::vector<std::string> kAllLimits{"cpu", "cpuset", "io", "memory", "pids"};

Deadline in_a_minute() { return Deadline::after(Millis(60'000)); }

// <id>, <id>/workload and <id>/workload/s1, as a sandbox has them.
class UnifiedHost : public ::testing::Test {
protected:
    void SetUp() override
    {
        const auto found = detect();
        ASSERT_TRUE(found.has_value());
        host_ = *found;
        if (host_.layout != Layout::v2)
            GTEST_SKIP() << "the cgroups of this host are " << to_string(host_.layout)
                         << ", not v2 alone";
        if (!testing::is_root()) GTEST_SKIP() << "making cgroups needs root";
        auto top = CgroupTree::create(host_, path_, kAllLimits);
        ASSERT_TRUE(top.has_value()) << top.error().message();
        top_.emplace(*std::move(top));
        ASSERT_TRUE(top_->enable_for_children(kAllLimits).has_value());
        workload_.emplace(*top_->make_child("workload"));
        ASSERT_TRUE(workload_->enable_for_children(kAllLimits).has_value());
        leaf_.emplace(*workload_->make_child("s1"));
    }

    void TearDown() override
    {
        if (!top_) return;
        EXPECT_TRUE(top_->kill_all(in_a_minute()).has_value());
        EXPECT_TRUE(top_->remove(in_a_minute()).has_value());
        EXPECT_TRUE(CgroupTree::find(host_, path_)->empty());
    }

    template <class Body>
    Pidfd born_in(const CgroupTree& tree, Body&& body)
    {
        const auto handles = tree.join_handles();
        CloneOptions options;
        options.cgroup_dir = handles->dir.get();
        auto child = clone_process(options);
        EXPECT_TRUE(child.has_value()) << (child ? "" : child.error().message());
        if (child->pid == 0) ::_exit(body());
        return Pidfd(std::move(child->pidfd), child->pid);
    }

    Host host_;
    std::string path_ = "/sandbox-test-v2-" + std::to_string(::getpid());
    std::optional<CgroupTree> top_, workload_, leaf_;
};

int sleep_for_ever()
{
    for (;;) ::pause();
}

}  // namespace

TEST_F(UnifiedHost, ReadsEveryLimitBackAsItWasWritten)
{
    const std::vector<Setting> settings{
        {"pids", "pids.max", "32"},         {"memory", "memory.max", "67108864"},
        {"memory", "memory.swap.max", "0"}, {"cpu", "cpu.max", "50000 100000"},
        {"cpu", "cpu.weight", "200"},       {"cpuset", "cpuset.cpus", "0"},
        {"io", "io.weight", "default 300"}};
    const auto set = workload_->set(settings);
    EXPECT_TRUE(set.has_value()) << set.error().message();
    EXPECT_TRUE(workload_->verify(settings).has_value());
    EXPECT_EQ(*leaf_->read("cpuset", "cpuset.cpus.effective"), "0") << "the leaf is below";
    const Setting odd{"memory", "memory.max", "67108865"};  // rounded down to pages
    const auto rounded = workload_->set({&odd, 1});
    ASSERT_FALSE(rounded.has_value());
    EXPECT_EQ(rounded.error().code(), Code::conflict);
    EXPECT_NE(rounded.error().message().find("67108864"), std::string::npos);
}

TEST_F(UnifiedHost, CountsForksThatTheWorkloadsLimitRefused)
{
    const Setting limit{"pids", "pids.max", "3"};
    ASSERT_TRUE(workload_->set({&limit, 1}).has_value());
    const auto child = born_in(*leaf_, [] {
        for (int made = 0; made < 10; ++made) {
            const pid_t pid = ::fork();
            if (pid < 0) return errno == EAGAIN ? made : 100;
            if (pid == 0) sleep_for_ever();
        }
        return 10;
    });
    const auto status = child.wait_exit(in_a_minute());
    ASSERT_TRUE(status && *status);
    EXPECT_EQ((*status)->code, 2);
    const auto usage = workload_->usage();
    ASSERT_TRUE(usage.has_value());
    // Also on kernels before 6.11, which count in the leaf only.
    EXPECT_EQ(usage->pids_refused, 1U);
    EXPECT_EQ(usage->pids, 2U);
}

TEST_F(UnifiedHost, CountsAKillForMemoryAboveTheLeafAndSparesTheParent)
{
    const std::vector<Setting> limits{{"memory", "memory.max", "33554432"},
                                      {"memory", "memory.swap.max", "0"}};
    ASSERT_TRUE(workload_->set(limits).has_value());
    const auto parent = born_in(*leaf_, [] {
        const pid_t hog = ::fork();
        if (hog == 0) {
            constexpr std::size_t size = 128U << 20;
            void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            ::memset(memory, 1, size);
            ::_exit(0);
        }
        int status = 0;
        ::waitpid(hog, &status, 0);
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? 7 : 8;
    });
    const auto status = parent.wait_exit(in_a_minute());
    ASSERT_TRUE(status && *status);
    EXPECT_EQ((*status)->code, 7) << "the hog alone was killed";
    // The count outlives the session's cgroup.
    ASSERT_TRUE(leaf_->remove(in_a_minute()).has_value());
    EXPECT_EQ(workload_->usage()->oom_kills, 1U);
    EXPECT_GT(workload_->usage()->memory_peak, 16U << 20);
}

TEST_F(UnifiedHost, KillsWhatIsFrozen)
{
    const auto child = born_in(*leaf_, sleep_for_ever);
    ASSERT_TRUE(workload_->freeze(in_a_minute()).has_value());
    EXPECT_EQ(*workload_->read("cgroup", "cgroup.freeze"), "1");
    const auto killed = top_->kill_all(in_a_minute());
    EXPECT_TRUE(killed.has_value()) << killed.error().message();
    EXPECT_EQ((*child.wait_exit(in_a_minute()))->signal, SIGKILL);
}

// The kernel would take cpu and pids there, and shut the cgroup to its owner's own children.
TEST_F(UnifiedHost, LeavesACgroupAloneThatProcessesLiveIn)
{
    const auto other = CgroupTree::create(host_, path_ + "/busy", {});
    ASSERT_TRUE(other.has_value());
    ASSERT_TRUE(workload_->remove(in_a_minute()).has_value());
    const auto child = born_in(*other, sleep_for_ever);
    for (const auto& wanted : {std::vector<std::string>{"pids"}, kAllLimits}) {
        const auto below = CgroupTree::create(host_, path_ + "/busy/id", wanted);
        ASSERT_FALSE(below.has_value());
        EXPECT_EQ(below.error().errnum(), EBUSY);
        EXPECT_NE(below.error().message().find("move them to a child"), std::string::npos);
        EXPECT_NE(below.error().message().find(path_ + "/busy"), std::string::npos)
            << below.error().message();
    }
    EXPECT_EQ(*other->read("cgroup", "cgroup.type"), "domain");
    EXPECT_EQ(*other->read("cgroup", "cgroup.subtree_control"), "");
    EXPECT_TRUE(other->kill_all(in_a_minute()).has_value());
    EXPECT_TRUE(child.wait_exit(in_a_minute())->has_value());
    EXPECT_TRUE(CgroupTree::create(host_, path_ + "/busy/id", kAllLimits).has_value());
}

}  // namespace sandbox::sys::cgroup
