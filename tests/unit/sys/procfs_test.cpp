// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <gtest/gtest.h>

#include "sys/procfs.hpp"

namespace sandbox::sys {

namespace {

std::string stat_line(const std::string& comm)
{
    return "77 (" + comm +
           ") S 1 2 3 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 18446744073709551615\n";
}

constexpr std::string_view kStatus =
    "Name:\tsh\nUmask:\t0022\nState:\tR (running)\nUid:\t1000\t1001\t1002\t1003\n"
    "Gid:\t5\t6\t7\t8\nGroups:\t4 24 27 \nNSpid:\t900\t3\nThreads:\t2\n"
    "CapInh:\t0000000000000001\nCapPrm:\t0000000000000002\nCapEff:\t0000000000000004\n"
    "CapBnd:\t000001fffeffffff\nCapAmb:\t0000000000000010\nNoNewPrivs:\t1\nSeccomp:\t2\n"
    "Seccomp_filters:\t3\n";

std::string without(std::string_view key)
{
    std::string text(kStatus);
    const auto at = text.find(key);
    text.erase(at, text.find('\n', at) + 1 - at);
    return text;
}

}  // namespace

TEST(ParseStat, ReadsTheFieldsOfAPlainProcess)
{
    const auto stat = parse_stat(stat_line("sleep"));
    ASSERT_TRUE(stat.has_value());
    EXPECT_EQ(stat->pid, 77);
    EXPECT_EQ(stat->comm, "sleep");
    EXPECT_EQ(stat->state, 'S');
    EXPECT_EQ(stat->ppid, 1);
    EXPECT_EQ(stat->pgrp, 2);
    EXPECT_EQ(stat->session, 3);
    EXPECT_EQ(stat->start_time, 987654U);
}

TEST(ParseStat, IsNotFooledByParenthesesAndNewlinesInTheName)
{
    for (const char* comm : {"a) R 5 6 (b", ")", "(", "x\ny", ") S 1 2 3\n", "", " "}) {
        const auto stat = parse_stat(stat_line(comm));
        ASSERT_TRUE(stat.has_value()) << comm;
        EXPECT_EQ(stat->comm, comm);
        EXPECT_EQ(stat->ppid, 1);
        EXPECT_EQ(stat->start_time, 987654U);
    }
}

TEST(ParseStat, RefusesEveryCutOfALine)
{
    const std::string whole = stat_line("sh");
    const auto end = whole.find("987654");
    for (std::size_t length = 0; length < end; ++length)
        EXPECT_FALSE(parse_stat(std::string_view(whole).substr(0, length)).has_value()) << length;
}

TEST(ParseStat, RefusesWordsWhereNumbersBelong)
{
    EXPECT_FALSE(parse_stat("x (sh) S 1 2 3 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 5 6").has_value());
    EXPECT_FALSE(parse_stat("1 (sh) SS 1 2 3 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 5 6").has_value());
}

TEST(ParseStatus, ReadsIdsCapabilitiesAndFilters)
{
    const auto status = parse_status(kStatus);
    ASSERT_TRUE(status.has_value());
    EXPECT_EQ(status->uid, (std::array<std::uint32_t, 4>{1000, 1001, 1002, 1003}));
    EXPECT_EQ(status->gid, (std::array<std::uint32_t, 4>{5, 6, 7, 8}));
    EXPECT_EQ(status->groups, (std::vector<std::uint32_t>{4, 24, 27}));
    EXPECT_EQ(status->ns_pid, (std::vector<pid_t>{900, 3}));
    EXPECT_EQ(status->cap_inheritable, 1U);
    EXPECT_EQ(status->cap_permitted, 2U);
    EXPECT_EQ(status->cap_effective, 4U);
    EXPECT_EQ(status->cap_bounding, 0x1fffeffffffU);
    EXPECT_EQ(status->cap_ambient, 16U);
    EXPECT_TRUE(status->no_new_privs);
    EXPECT_EQ(status->seccomp, 2);
    EXPECT_EQ(status->seccomp_filters, 3);
    EXPECT_EQ(status->umask, 022U);
    EXPECT_EQ(status->threads, 2);
}

TEST(ParseStatus, RefusesATextThatLacksALineAboutPrivileges)
{
    for (const char* key : {"Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:",
                            "CapAmb:", "NoNewPrivs:", "Seccomp:"})
        EXPECT_FALSE(parse_status(without(key)).has_value()) << key;
}

TEST(ParseStatus, RefusesALineThatComesTwice)
{
    EXPECT_FALSE(parse_status(std::string(kStatus) + "Seccomp:\t0\n").has_value());
    EXPECT_FALSE(parse_status("CapEff:\t0000000000000000\n" + std::string(kStatus)).has_value());
}

TEST(ParseStatus, AcceptsNoGroupsAtAll)
{
    const auto status = parse_status(without("Groups:") + "Groups:\t\n");
    ASSERT_TRUE(status.has_value());
    EXPECT_TRUE(status->groups.empty());
}

TEST(ParseIdMap, ReadsCompleteAndOneIdMaps)
{
    const auto map = parse_id_map("         0     100000      65536\n 65536 5 1\n");
    ASSERT_TRUE(map.has_value());
    EXPECT_EQ(*map, (std::vector<IdMapping>{{0, 100000, 65536}, {65536, 5, 1}}));
    EXPECT_EQ(format_id_map(*map), "0 100000 65536\n65536 5 1\n");
    EXPECT_TRUE(parse_id_map("")->empty());
}

TEST(ParseIdMap, RefusesWhatIsNotThreeNumbers)
{
    for (const char* text : {"0 1\n", "0 1 2 3\n", "a 1 2\n", "0 1 4294967296\n", "-1 0 1\n", "\n"})
        EXPECT_FALSE(parse_id_map(text).has_value()) << text;
}

TEST(ParseMountinfo, ReadsOptionalFieldsAndOctalEscapes)
{
    const auto mounts = parse_mountinfo(
        "36 35 98:0 /mnt1 /mnt\\0402\\134x rw,noatime master:1 shared:7 - ext3 /dev/ro\\040ot "
        "rw,errors=continue\n"
        "40 36 0:5 / /proc ro - proc proc rw\n");
    ASSERT_TRUE(mounts.has_value());
    ASSERT_EQ(mounts->size(), 2U);
    const MountInfo& first = mounts->front();
    EXPECT_EQ(first.id, 36U);
    EXPECT_EQ(first.parent, 35U);
    EXPECT_EQ(first.major, 98U);
    EXPECT_EQ(first.root, "/mnt1");
    EXPECT_EQ(first.target, "/mnt 2\\x");
    EXPECT_TRUE(first.has("noatime"));
    EXPECT_FALSE(first.has("ro"));
    EXPECT_EQ(first.optional, (std::vector<std::string>{"master:1", "shared:7"}));
    EXPECT_EQ(first.fstype, "ext3");
    EXPECT_EQ(first.source, "/dev/ro ot");
    EXPECT_EQ(first.super_options, (std::vector<std::string>{"rw", "errors=continue"}));
    EXPECT_TRUE(mounts->back().optional.empty());
}

TEST(ParseMountinfo, KeepsABackslashThatBeginsNoEscape)
{
    const auto mounts = parse_mountinfo("1 2 0:1 / /a\\9\\04 rw - t s rw\n");
    ASSERT_TRUE(mounts.has_value());
    EXPECT_EQ(mounts->front().target, "/a\\9\\04");
}

TEST(ParseMountinfo, RefusesCutLines)
{
    const std::string line = "36 35 98:0 / /mnt rw shared:1 - ext3 ";
    const auto separator = line.find(" - ext3") + 4;
    for (std::size_t length = 1; length < separator; ++length)
        EXPECT_FALSE(parse_mountinfo(line.substr(0, length)).has_value()) << length;
}

TEST(ParseCgroup, ReadsBothVersions)
{
    const auto lines = parse_cgroup("9:name=systemd:/a:b\n4:cpu,cpuacct:/x\n0::/\n");
    ASSERT_TRUE(lines.has_value());
    ASSERT_EQ(lines->size(), 3U);
    EXPECT_EQ((*lines)[0].controllers, std::vector<std::string>{"name=systemd"});
    EXPECT_EQ((*lines)[0].path, "/a:b");
    EXPECT_EQ((*lines)[1].controllers, (std::vector<std::string>{"cpu", "cpuacct"}));
    EXPECT_EQ((*lines)[2].hierarchy, 0U);
    EXPECT_TRUE((*lines)[2].controllers.empty());
}

TEST(ParseCgroup, RefusesLinesWithoutAnAbsolutePath)
{
    for (const char* text : {"0::x\n", "0:\n", "x::/\n", "0\n", "\n"})
        EXPECT_FALSE(parse_cgroup(text).has_value()) << text;
}

TEST(ProcDir, ReadsTheRealFilesOfThisProcess)
{
    const auto self = ProcDir::open(::getpid());
    ASSERT_TRUE(self.has_value());
    EXPECT_EQ(self->stat()->pid, ::getpid());
    EXPECT_EQ(self->stat()->ppid, ::getppid());
    EXPECT_EQ(self->status()->uid[1], ::geteuid());
    EXPECT_FALSE(self->uid_map()->empty());
    EXPECT_FALSE(self->gid_map()->empty());
    EXPECT_FALSE(self->mountinfo()->empty());
    EXPECT_FALSE(self->cgroup()->empty());
    EXPECT_GT(*self->namespace_inode("user"), 0U);
    EXPECT_FALSE(self->namespace_inode("nonsense").has_value());
}

TEST(ProcDir, FailsForAProcessThatIsNotThere)
{
    const auto none = ProcDir::open(0x7ffffff0);
    ASSERT_FALSE(none.has_value());
    EXPECT_EQ(none.error().code(), Code::not_found);
}

}  // namespace sandbox::sys
