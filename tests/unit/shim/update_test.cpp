// SPDX-License-Identifier: Apache-2.0
#include "shim/update.hpp"

#include <gtest/gtest.h>

#include <map>

namespace sandbox::shim {
namespace {

using plan::CgroupSetting;
using plan::CgroupVersion;
using Settings = std::vector<CgroupSetting>;

CgroupSetting memory(const std::string& value)
{
    return {"memory", "memory.limit_in_bytes", value};
}
CgroupSetting both(const std::string& value)
{
    return {"memory", "memory.memsw.limit_in_bytes", value};
}
CgroupSetting pids(const std::string& value) { return {"pids", "pids.max", value}; }

constexpr const char* kNoLimit = "9223372036854771712";

Settings v1(const Settings& from, const Settings& to)
{
    return order_writes(CgroupVersion::v1, from, to, "0-3");
}

TEST(UpdateWrites, AreOnlyThoseThatDiffer)
{
    EXPECT_TRUE(v1({pids("9"), memory("100")}, {pids("9"), memory("100")}).empty());
    EXPECT_EQ(v1({pids("9"), memory("100")}, {pids("8"), memory("100")}), Settings{pids("8")});
    EXPECT_EQ(v1({pids("9")}, {pids("9"), {"cpu", "cpu.shares", "512"}}),
              (Settings{{"cpu", "cpu.shares", "512"}}));
}

TEST(UpdateWrites, RaiseMemoryAndSwapBeforeMemoryAndLowerItAfter)
{
    EXPECT_EQ(v1({memory("100"), both("100")}, {memory("200"), both("200")}),
              (Settings{both("200"), memory("200")}));
    EXPECT_EQ(v1({memory("200"), both("200")}, {memory("100"), both("100")}),
              (Settings{memory("100"), both("100")}));
    EXPECT_EQ(v1({}, {memory("100"), both("100")}), (Settings{memory("100"), both("100")}));
    EXPECT_EQ(v1({memory("100"), both("100")}, {}), (Settings{both(kNoLimit), memory(kNoLimit)}));
}

// At no moment may a v1 memory limit stand above that of memory and swap: the kernel says EINVAL.
TEST(UpdateWrites, NeverAskV1ForAMemoryLimitAboveThatOfMemoryAndSwap)
{
    const std::vector<std::string> sizes{"100", "200", "300", kNoLimit};
    const auto number = [](const std::string& text) { return std::stoull(text); };
    const auto check = [&](std::size_t m0, std::size_t s0, std::size_t m1, std::size_t s1) {
        const auto limits = [&](std::size_t m, std::size_t s) {
            return sizes[m] == kNoLimit ? Settings{} : Settings{memory(sizes[m]), both(sizes[s])};
        };
        std::map<std::string, std::uint64_t> now{
            {"memory.limit_in_bytes", number(sizes[m0])},
            {"memory.memsw.limit_in_bytes", number(sizes[s0])}};
        if (m0 == 3) now["memory.memsw.limit_in_bytes"] = number(kNoLimit);
        for (const CgroupSetting& write : v1(limits(m0, s0), limits(m1, s1))) {
            now[write.file] = number(write.value);
            EXPECT_LE(now["memory.limit_in_bytes"], now["memory.memsw.limit_in_bytes"])
                << m0 << s0 << m1 << s1;
        }
    };
    for (std::size_t m0 = 0; m0 < sizes.size(); ++m0) {
        for (std::size_t s0 = m0; s0 < sizes.size(); ++s0) {
            for (std::size_t m1 = 0; m1 < sizes.size(); ++m1) {
                for (std::size_t s1 = m1; s1 < sizes.size(); ++s1) check(m0, s0, m1, s1);
            }
        }
    }
}

TEST(UpdateWrites, GiveALimitThatIsNoLongerWantedItsValueWithoutLimit)
{
    const Settings all{{"memory", "memory.max", "1"},       {"memory", "memory.swap.max", "1"},
                       {"memory", "memory.oom.group", "1"}, {"cpu", "cpu.max", "5000 100000"},
                       {"cpu", "cpu.weight", "7"},          {"cpuset", "cpuset.cpus", "1"},
                       {"io", "io.weight", "default 7"}};
    const Settings wanted{{"memory", "memory.max", "max"},     {"memory", "memory.swap.max", "max"},
                          {"memory", "memory.oom.group", "0"}, {"cpu", "cpu.max", "max 100000"},
                          {"cpu", "cpu.weight", "100"},        {"cpuset", "cpuset.cpus", "0-3"},
                          {"io", "io.weight", "default 100"}};
    EXPECT_EQ(order_writes(CgroupVersion::v2, all, {}, "0-3"), wanted);
    EXPECT_EQ(v1({{"cpu", "cpu.cfs_period_us", "100000"},
                  {"cpu", "cpu.cfs_quota_us", "5000"},
                  {"cpu", "cpu.shares", "7"}},
                 {}),
              (Settings{{"cpu", "cpu.cfs_quota_us", "-1"}, {"cpu", "cpu.shares", "1024"}}));
}

TEST(UpdateRequest, SurvivesTheWire)
{
    const UpdateRequest request{"plan-0123.json", "sha256:ab"};
    const auto back = decode_control_request(encode(Request(request)).value());
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_EQ(std::get<UpdateRequest>(*back), request);
    EXPECT_FALSE(decode_control_request(R"({"op":"update","file":"x"})"));
}

}  // namespace
}  // namespace sandbox::shim
