// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include <gtest/gtest.h>

#include "child.hpp"
#include "sys/cgroup/cgroup.hpp"
#include "sys/cgroup/walk.hpp"

namespace sandbox::sys::cgroup {

namespace {

using testing::in_child;

const std::vector<std::string> kControllers{"cpu", "cpuset", "memory", "pids"};

Deadline shortly() { return Deadline::after(Millis(20'000)); }

Hierarchy first(std::string mount, std::vector<std::string> controllers)
{
    return Hierarchy{Version::v1, std::move(mount), std::move(controllers), {}};
}

// A tree of our own on the real host; gone when the test ends, however it ends.
class RealCgroups : public ::testing::Test {
protected:
    void SetUp() override
    {
        const auto found = detect();
        ASSERT_TRUE(found.has_value());
        host_ = *found;
        if (!testing::is_root()) GTEST_SKIP() << "making cgroups needs root";
    }

    void TearDown() override
    {
        if (host_.hierarchies.empty()) return;
        const auto tree = CgroupTree::find(host_, parent_);
        ASSERT_TRUE(tree.has_value());
        EXPECT_TRUE(tree->kill_all(shortly()).has_value());
        EXPECT_TRUE(tree->remove(shortly()).has_value());
        EXPECT_TRUE(CgroupTree::find(host_, parent_)->empty());
    }

    bool v1_with(std::string_view controller) const
    {
        const Hierarchy* hierarchy = host_.with(controller);
        return hierarchy != nullptr && hierarchy->version == Version::v1;
    }

    // Forks a child that joins `tree` and runs `body`.
    template <class Body>
    Pidfd start(const CgroupTree& tree, Body&& body)
    {
        const auto handles = tree.join_handles();
        EXPECT_TRUE(handles.has_value());
        const auto numbers = handles->task_numbers();
        CloneOptions options;
        options.cgroup_dir = handles->dir.get();
        auto child = clone_process(options);
        EXPECT_TRUE(child.has_value()) << (child ? "" : child.error().message());
        if (child->pid == 0) ::_exit(join_self(numbers) == 0 ? body() : 250);
        return Pidfd(std::move(child->pidfd), child->pid);
    }

    Host host_;
    std::string parent_ = "/sandbox-test-" + std::to_string(::getpid());
};

int wait_for_ever()
{
    for (;;) ::pause();
}

}  // namespace

TEST(CgroupDetect, TellsAHybridHostAndWhatMustBeCovered)
{
    const auto mounts = parse_mountinfo(
        "30 1 0:20 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
        "31 30 0:21 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "32 30 0:22 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
        "33 30 0:23 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    const Host host = detect(*mounts, {{"/sys/fs/cgroup/unified", "hugetlb\n"}});
    EXPECT_EQ(host.layout, Layout::hybrid);
    EXPECT_TRUE(host.cover_unified);
    ASSERT_EQ(host.hierarchies.size(), 3U);
    EXPECT_EQ(host.hierarchies[0].controllers, (std::vector<std::string>{"cpu", "cpuacct"}));
    EXPECT_EQ(host.hierarchies[1].name, "systemd");
    EXPECT_TRUE(host.hierarchies[1].controllers.empty());
    EXPECT_EQ(host.with("cpu")->mount, "/sys/fs/cgroup/cpu,cpuacct");
    EXPECT_EQ(host.with("hugetlb"), host.v2());
    EXPECT_EQ(host.with("memory"), nullptr);
    EXPECT_FALSE(detect(*mounts, {{"/sys/fs/cgroup/unified", "\n"}}).cover_unified);
}

TEST(CgroupDetect, TellsPureHostsAndHostsWithout)
{
    const auto second = parse_mountinfo("30 1 0:20 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    const Host v2 = detect(*second, {{"/sys/fs/cgroup", "cpu memory pids\n"}});
    EXPECT_EQ(v2.layout, Layout::v2);
    EXPECT_FALSE(v2.cover_unified);
    EXPECT_EQ(v2.with("memory")->version, Version::v2);
    const auto v1 = parse_mountinfo("31 30 0:21 / /c/memory rw - cgroup cgroup rw,memory\n");
    EXPECT_EQ(detect(*v1, {}).layout, Layout::v1);
    EXPECT_EQ(detect({}, {}).layout, Layout::none);
}

TEST(CgroupDetect, PrefersTheHierarchyThatHoldsTheController)
{
    Host host;
    host.hierarchies = {Hierarchy{Version::v2, "/u", {"memory"}, {}}, first("/m", {"memory"})};
    EXPECT_EQ(host.with("memory")->mount, "/m");
}

TEST(CgroupText, FindsAKeyOnlyAsAWholeWord)
{
    EXPECT_EQ(keyed_value("oom_kill_disable 1\noom_kill 7\n", "oom_kill"), 7U);
    EXPECT_EQ(keyed_value("nr_throttled 5", "nr_throttled"), 5U);
    EXPECT_EQ(keyed_value("a 1\n", "b"), 0U);
    EXPECT_EQ(keyed_value("", "b"), 0U);
}

TEST_F(RealCgroups, AreMadeBelowAParentThatOthersTakeAway)
{
    // As sandboxes do that end last below it, some twenty of them during each of our calls: fewer than
    // a call goes on for.
    std::atomic<bool> over{false};
    std::atomic<int> ends{0};
    std::thread others([&] {
        std::vector<std::string> parents;
        for (const Hierarchy& hierarchy : host_.hierarchies)
            parents.push_back(hierarchy.mount + parent_);
        while (!over) {
            if (ends <= 0) {
                std::this_thread::yield();
                continue;
            }
            --ends;
            for (const std::string& parent : parents) ::rmdir(parent.c_str());
        }
    });
    for (int i = 0; i < 200; ++i) {
        ends = 20;
        const auto tree = CgroupTree::create(host_, parent_ + "/child", kControllers);
        EXPECT_TRUE(tree.has_value()) << (tree ? "" : tree.error().message());
        if (!tree) break;
        EXPECT_TRUE(tree->remove(shortly()).has_value());
    }
    over = true;
    others.join();
}

TEST_F(RealCgroups, MakesFillsReadsBackAndRemovesATree)
{
    auto tree = CgroupTree::create(host_, parent_ + "/one", kControllers);
    ASSERT_TRUE(tree.has_value()) << tree.error().message();
    const auto workload = tree->make_child("workload");
    ASSERT_TRUE(workload.has_value()) << workload.error().message();
    if (!v1_with("pids")) GTEST_SKIP() << "the pids controller is not in a v1 hierarchy here";
    const std::vector<Setting> settings{{"pids", "pids.max", "32"},
                                        {"memory", "memory.limit_in_bytes", "67108864"},
                                        {"cpu", "cpu.cfs_quota_us", "50000"}};
    const auto set = workload->set(settings);
    EXPECT_TRUE(set.has_value()) << set.error().message();
    EXPECT_EQ(*workload->read("pids", "pids.max"), "32");
    EXPECT_FALSE(workload->read("cpuset", "cpuset.cpus")->empty());
    const auto identities = workload->identities();
    EXPECT_EQ(identities.size(), workload->folders().size());
    for (const DirIdentity& one : identities) EXPECT_GT(one.identity.inode, 1U);
    // A second create takes the same folders over.
    const auto again = CgroupTree::create(host_, parent_ + "/one/workload", kControllers);
    EXPECT_EQ(again->identities(), identities);
    EXPECT_TRUE(tree->remove(shortly()).has_value());
    EXPECT_TRUE(tree->remove(shortly()).has_value());
    EXPECT_TRUE(CgroupTree::find(host_, parent_ + "/one")->empty());
    EXPECT_TRUE(remove_if_empty(host_, parent_).has_value());
    EXPECT_TRUE(CgroupTree::find(host_, parent_)->empty());
}

TEST_F(RealCgroups, SaysSoWhenTheKernelReadsBackAnotherValue)
{
    const auto tree = CgroupTree::create(host_, parent_, kControllers);
    ASSERT_TRUE(tree.has_value());
    if (!v1_with("memory")) GTEST_SKIP() << "the memory controller is not in a v1 hierarchy here";
    // The kernel rounds down to pages.
    const Setting odd{"memory", "memory.limit_in_bytes", "67108865"};
    const auto set = tree->set({&odd, 1});
    ASSERT_FALSE(set.has_value());
    EXPECT_EQ(set.error().code(), Code::conflict);
    EXPECT_NE(set.error().message().find("67108864"), std::string::npos);
    const Setting unknown{"nonsense", "x", "1"};
    EXPECT_EQ(tree->set({&unknown, 1}).error().code(), Code::unavailable);
}

TEST_F(RealCgroups, RefusesPathsThatLeaveTheParent)
{
    for (const char* path : {"", "/", "x", "/../x", "/a/../b", "/a/./b"})
        EXPECT_FALSE(CgroupTree::create(host_, path, kControllers).has_value()) << path;
    const auto tree = CgroupTree::create(host_, parent_, kControllers);
    for (const char* name : {"", "..", "a/b", "."})
        EXPECT_FALSE(tree->make_child(name).has_value()) << name;
    const std::vector<std::string> unknown{"nonsense"};
    EXPECT_EQ(CgroupTree::create(host_, parent_, unknown).error().code(), Code::unavailable);
}

TEST_F(RealCgroups, HoldsAChildThatJoinedItselfToTheLimit)
{
    const auto tree = CgroupTree::create(host_, parent_, kControllers);
    ASSERT_TRUE(tree.has_value());
    const Setting limit{"pids", "pids.max", "3"};
    ASSERT_TRUE(tree->set({&limit, 1}).has_value());
    const auto child = start(*tree, [] {
        int made = 0;
        while (made < 10) {
            const pid_t pid = ::fork();
            if (pid < 0) return errno == EAGAIN ? made : 100;
            if (pid == 0) wait_for_ever();
            ++made;
        }
        return made;
    });
    const auto status = child.wait_exit(shortly());
    ASSERT_TRUE(status && *status);
    EXPECT_EQ((*status)->code, 2);
    EXPECT_EQ(tree->processes()->size(), 2U);
    EXPECT_GE(tree->usage()->pids_refused, 1U);
    EXPECT_EQ(tree->usage()->pids, 2U);
}

TEST_F(RealCgroups, CountsAProcessKilledForMemory)
{
    const auto tree = CgroupTree::create(host_, parent_, kControllers);
    ASSERT_TRUE(tree.has_value());
    const auto leaf = tree->make_child("s1");
    if (!v1_with("memory")) GTEST_SKIP() << "the memory controller is not in a v1 hierarchy here";
    const std::vector<Setting> limits{{"memory", "memory.limit_in_bytes", "16777216"},
                                      {"memory", "memory.memsw.limit_in_bytes", "16777216"}};
    const auto set = tree->set(limits);
    ASSERT_TRUE(set.has_value()) << set.error().message();
    const auto child = start(*leaf, [] {
        constexpr std::size_t size = 64U << 20;
        void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                              -1, 0);
        ::memset(memory, 1, size);
        return 0;
    });
    EXPECT_EQ((*child.wait_exit(shortly()))->signal, SIGKILL);
    EXPECT_EQ(tree->usage()->oom_kills, 1U);
    EXPECT_GT(tree->usage()->memory_peak, 8U << 20);
}

TEST_F(RealCgroups, KillsAForkStormToTheLast)
{
    const auto tree = CgroupTree::create(host_, parent_, kControllers);
    ASSERT_TRUE(tree.has_value());
    const auto leaf = tree->make_child("s1");
    const Setting limit{"pids", "pids.max", "64"};
    ASSERT_TRUE(tree->set({&limit, 1}).has_value());
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const auto child = start(*leaf, [&] {
        ::signal(SIGTERM, SIG_IGN);
        ::setsid();
        // Each generation forks the next and leaves: no list of pids is ever up to date.
        for (int count = 0;; ++count) {
            if (count == 50) (void)!::write(ready[1], "x", 1);
            const pid_t pid = ::fork();
            if (pid > 0 && count > 0) ::_exit(0);
            if (pid > 0) ::waitpid(pid, nullptr, 0);
        }
        return 0;
    });
    EXPECT_NE(*poll_one(ready[0], POLLIN, shortly()), 0);
    EXPECT_FALSE(tree->processes()->empty());
    const auto killed = tree->kill_all(shortly());
    EXPECT_TRUE(killed.has_value()) << killed.error().message();
    EXPECT_TRUE(tree->processes()->empty());
    EXPECT_TRUE(child.wait_exit(shortly())->has_value());
    close_number(ready[0]);
    close_number(ready[1]);
}

TEST_F(RealCgroups, FreezesAndThawsWithoutLosingAProcess)
{
    const auto tree = CgroupTree::create(host_, parent_, kControllers);
    ASSERT_TRUE(tree.has_value());
    const auto child = start(*tree, wait_for_ever);
    while (tree->processes()->empty()) ASSERT_FALSE(*child.ended());
    ASSERT_TRUE(tree->freeze(shortly()).has_value());
    // A frozen process does not act on a signal; a thawed one does.
    ASSERT_TRUE(child.send_signal(SIGKILL).has_value());
    EXPECT_TRUE(!v1_with("freezer") || !*child.ended());
    ASSERT_TRUE(tree->thaw(shortly()).has_value());
    EXPECT_EQ((*child.wait_exit(shortly()))->signal, SIGKILL);
}

TEST_F(RealCgroups, KillsWhatAChildOfItKeepsFrozen)
{
    const auto tree = CgroupTree::create(host_, parent_, kControllers);
    ASSERT_TRUE(tree.has_value());
    const auto leaf = tree->make_child("paused");
    const auto child = start(*leaf, wait_for_ever);
    while (leaf->processes()->empty()) ASSERT_FALSE(*child.ended());
    ASSERT_TRUE(leaf->freeze(shortly()).has_value());
    const auto killed = tree->kill_all(shortly());
    EXPECT_TRUE(killed.has_value()) << killed.error().message();
    EXPECT_EQ((*child.wait_exit(shortly()))->signal, SIGKILL);
}

TEST_F(RealCgroups, LeavesStrangersAlone)
{
    const auto tree = CgroupTree::create(host_, parent_, kControllers);
    ASSERT_TRUE(tree.has_value());
    const auto inside = tree->make_child("in");
    const auto outside = tree->make_child("out");
    const auto victim = start(*inside, wait_for_ever);
    const auto stranger = start(*outside, wait_for_ever);
    while (tree->processes()->size() < 2) ASSERT_FALSE(*stranger.ended());
    ASSERT_TRUE(inside->kill_all(shortly()).has_value());
    EXPECT_EQ((*victim.wait_exit(shortly()))->signal, SIGKILL);
    EXPECT_FALSE(*stranger.ended());
    ASSERT_TRUE(tree->kill_all(shortly()).has_value());
    EXPECT_TRUE(stranger.wait_exit(shortly())->has_value());
}

TEST_F(RealCgroups, GivesUpRemovingABusyTreeAtTheDeadline)
{
    const auto tree = CgroupTree::create(host_, parent_, kControllers);
    ASSERT_TRUE(tree.has_value());
    const auto child = start(*tree, wait_for_ever);
    while (tree->processes()->empty()) ASSERT_FALSE(*child.ended());
    const auto removed = tree->remove(Deadline::after(Millis(20)));
    ASSERT_FALSE(removed.has_value());
    EXPECT_EQ(removed.error().code(), Code::deadline_exceeded);
    ASSERT_TRUE(tree->kill_all(shortly()).has_value());
    EXPECT_TRUE(child.wait_exit(shortly())->has_value());
}

// The v2 ways (CLONE_INTO_CGROUP, cgroup.kill, cgroup.freeze) on whatever v2 mount there is, even
// one that holds no controller of interest.
TEST_F(RealCgroups, BornInsideAndKilledAtOnceOnVersionTwo)
{
    if (host_.v2() == nullptr) GTEST_SKIP() << "no cgroup v2 mount on this host";
    Host second;
    second.layout = Layout::v2;
    second.hierarchies = {*host_.v2()};
    const auto tree = CgroupTree::create(second, parent_, {});
    ASSERT_TRUE(tree.has_value()) << tree.error().message();
    const auto leaf = tree->make_child("s1");
    ASSERT_TRUE(leaf->chown_procs(0, 0).has_value());
    const auto child = start(*leaf, wait_for_ever);
    EXPECT_EQ(*tree->processes(), std::vector<pid_t>{child.pid()});
    EXPECT_TRUE(tree->freeze(shortly()).has_value());
    EXPECT_TRUE(tree->thaw(shortly()).has_value());
    EXPECT_TRUE(tree->kill_all(shortly()).has_value());
    EXPECT_EQ((*child.wait_exit(shortly()))->signal, SIGKILL);
    EXPECT_TRUE(tree->remove(shortly()).has_value());
}

TEST_F(RealCgroups, EnablesAControllerForTheChildrenOnVersionTwo)
{
    if (host_.v2() == nullptr || host_.v2()->controllers.empty())
        GTEST_SKIP() << "no cgroup v2 mount with a controller on this host";
    Host second;
    second.layout = Layout::v2;
    second.hierarchies = {*host_.v2()};
    // Only a controller that the root has switched on already: the root is not ours to change.
    const std::string before = *read_file(host_.v2()->mount + "/cgroup.subtree_control", 4096);
    const std::vector<std::string> wanted{host_.v2()->controllers.front()};
    if (before.find(wanted[0]) == std::string::npos)
        GTEST_SKIP() << "the root of the v2 mount gives its children no controller: \"" << before
                     << "\"";
    const auto tree = CgroupTree::create(second, parent_, wanted);
    ASSERT_TRUE(tree.has_value());
    EXPECT_TRUE(tree->enable_for_children(wanted).has_value());
    EXPECT_TRUE(tree->enable_for_children(wanted).has_value());
    EXPECT_EQ(*tree->read("cgroup", "cgroup.subtree_control"), wanted[0]);
}

}  // namespace sandbox::sys::cgroup
