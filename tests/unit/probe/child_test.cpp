// SPDX-License-Identifier: Apache-2.0
#include "probe/child.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "census.hpp"
#include "probe/tiny_program.hpp"
#include "sys/deadline.hpp"
#include "sys/file.hpp"

namespace sandbox::probe {
namespace {

using facts::FactStatus;
using std::chrono::milliseconds;
using test::take_census;

constexpr milliseconds kLong{60'000};  // of what ends by itself
constexpr milliseconds kShort{100};
// What has to get somewhere before its deadline, and never ends, gets longer ones in turn.
constexpr std::array<milliseconds, 4> kLonger{kShort, milliseconds{1000}, milliseconds{5000},
                                              milliseconds{20'000}};

facts::Fact run_one(std::function<void(const Reporter&)> body, milliseconds deadline)
{
    const Task task{"unit", {"fact"}, std::move(body)};
    return run_tasks({task}, deadline).at("fact");
}

TEST(ProbeChild, ReportsStatusValueAndEvidence)
{
    const auto fact = run_one([](const Reporter& out) { out.report("fact", found("7", "seen")); },
                              kLong);
    EXPECT_EQ(fact, (facts::Fact{FactStatus::ok, "7", "seen"}));
}

TEST(ProbeChild, EscapesSeparatorsInTextFromTheKernel)
{
    const auto fact = run_one(
        [](const Reporter& out) {
            out.report("fact", missing("a\x1f"
                                       "b\nfact\x1fok\x1f"));
        },
        kLong);
    EXPECT_EQ(fact.status, FactStatus::gap);
    EXPECT_EQ(fact.evidence, "a\\x1fb\\x0afact\\x1fok\\x1f");
}

TEST(ProbeChild, EndsAHangingCheckAtItsDeadline)
{
    const auto before = take_census();
    const auto start = sys::boottime_ns();
    const auto fact = run_one([](const Reporter&) { pause(); }, kShort);
    const auto took = (sys::boottime_ns() - start) / 1'000'000;
    EXPECT_EQ(fact.status, FactStatus::gap);
    EXPECT_EQ(fact.evidence, "unit: the check did not end within 100 ms and was killed");
    EXPECT_GE(took, 100);
    EXPECT_LT(took, kLong.count());
    EXPECT_EQ(before, take_census()) << describe(take_census());
}

TEST(ProbeChild, KeepsWhatWasFoundBeforeAHang)
{
    facts::Fact fact;
    for (const auto deadline : kLonger) {
        fact = run_one(
            [](const Reporter& out) {
                out.report("fact", found("kept", ""));
                pause();
            },
            deadline);
        if (fact.value == "kept") break;
    }
    EXPECT_EQ(fact.value, "kept");
}

constexpr const char* kMarker = "sb-unit-orphan";

bool any_process_named(const std::string& comm)
{
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        const auto text = sys::read_file(entry.path().string() + "/comm", 64);
        if (text && *text == comm + '\n') return true;
    }
    return false;
}

TEST(ProbeChild, KillsGrandchildrenOfAHangingCheck)
{
    void* page = mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                      0);
    ASSERT_NE(page, MAP_FAILED);
    auto* seen = static_cast<volatile int*>(page);
    for (const auto deadline : kLonger) {
        run_one(
            [seen](const Reporter&) {
                in_process([seen]() -> int {
                    signal(SIGTERM, SIG_IGN);
                    prctl(PR_SET_NAME, kMarker);
                    *seen = any_process_named(kMarker) ? 1 : 2;
                    while (true) pause();
                });
            },
            deadline);
        if (*seen != 0) break;
    }
    EXPECT_EQ(*seen, 1) << "the grandchild never ran, or cannot be seen by its name";
    EXPECT_FALSE(any_process_named(kMarker));
    munmap(page, sizeof(int));
}

TEST(ProbeChild, NamesTheSignalOfACrash)
{
    const auto fact = run_one([](const Reporter&) { __builtin_trap(); }, kLong);
    EXPECT_EQ(fact.status, FactStatus::gap);
    EXPECT_EQ(fact.evidence, "unit: the check was ended by signal 4");
}

TEST(ProbeChild, SaysWhenACheckEndsWithoutAWord)
{
    EXPECT_EQ(run_one([](const Reporter&) {}, kLong).evidence,
              "unit: the check ended without a word");
}

TEST(ProbeChild, TurnsAnExceptionIntoAGap)
{
    const auto fact = run_one([](const Reporter&) { throw 1; }, kLong);
    EXPECT_EQ(fact.evidence, "unit: the check failed (1)");
}

TEST(ProbeChild, DropsFactsThatTheTaskDoesNotOwn)
{
    const Task task{"unit", {"fact"}, [](const Reporter& out) {
                        out.report("driver.oci", found("yes", "forged"));
                        out.report("fact", found("yes", ""));
                    }};
    const auto facts = run_tasks({task}, kLong);
    EXPECT_EQ(facts.size(), 1U);
    EXPECT_FALSE(facts.contains("driver.oci"));
}

TEST(ProbeChild, HandsNoDescriptorOfTheProgramToAChild)
{
    const auto open_file = sys::open_file("/proc/self/status", O_RDONLY);
    ASSERT_TRUE(open_file);
    const auto fact = run_one(
        [](const Reporter& out) {
            std::string held;
            for (int number = 0; number < 64; ++number) {
                if (fcntl(number, F_GETFD) >= 0) held += std::to_string(number) + ' ';
            }
            out.report("fact", found(held, ""));
        },
        kLong);
    // Three times /dev/null, the report pipe, and the descriptor of /dev/null itself.
    EXPECT_EQ(fact.value, "0 1 2 3 4 ");
}

TEST(ProbeChild, RunsNoSignalHandlerOfTheProgram)
{
    const auto handler = signal(SIGUSR1, [](int) { _exit(99); });
    const auto fact = run_one(
        [](const Reporter& out) {
            const auto mine = signal(SIGUSR1, SIG_DFL);
            out.report("fact", found(mine == SIG_DFL ? "default" : "inherited", ""));
        },
        kLong);
    signal(SIGUSR1, handler);
    EXPECT_EQ(fact.value, "default");
}

TEST(ProbeChild, KeepsMountsOfAChildFromTheHost)
{
    const auto before = take_census();
    const auto fact = run_one(
        [](const Reporter& out) {
            const bool done = mount("tmpfs", "/tmp", "tmpfs", 0, nullptr) == 0;
            out.report("fact", done ? found("mounted", "") : missing_errno("mount"));
        },
        kLong);
    EXPECT_EQ(fact.value, "mounted") << fact.evidence;
    EXPECT_EQ(before.mounts, take_census().mounts);
}

TEST(ProbeChild, RunsTasksSideBySide)
{
    void* page = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page, MAP_FAILED);
    auto* here = new (page) std::atomic<int>(0);
    // A task names its facts for as long as it lives.
    constexpr std::array<std::string_view, 4> kNames{"fact0", "fact1", "fact2", "fact3"};
    constexpr int kTasks = kNames.size();
    std::vector<Task> tasks;
    for (const std::string_view name : kNames) {
        tasks.push_back({"unit", {name}, [here, name](const Reporter& out) {
                             ++*here;
                             // One after the other, the first would wait for ever.
                             while (*here < kTasks) sched_yield();
                             out.report(name, found("met", ""));
                         }});
    }
    for (const auto& [name, fact] : run_tasks(tasks, kLong)) EXPECT_EQ(fact.value, "met") << name;
    munmap(page, sizeof(std::atomic<int>));
}

TEST(ProbeChild, PassesOneDescriptorToAProgram)
{
    auto pipe = sys::make_pipe();
    ASSERT_TRUE(pipe);
    const auto program = sys::sealed_memfd("unit", tiny_speaking_program());
    ASSERT_TRUE(program);
    const ProgramEnd end = run_program(
        {.executable = program->get(), .argv = {"unit"}, .passed = pipe->write.get()});
    pipe->write.reset();
    EXPECT_EQ(end.status, 0);
    EXPECT_EQ(sys::read_all(pipe->read.get(), 16).value_or(""), std::string(1, kTinyByte));
}

TEST(ProbeChild, GivesTheStatusOfAProgramAndOfASignal)
{
    EXPECT_EQ(in_process([] { return 7; }), 7);
    EXPECT_EQ(in_process([]() -> int {
                  raise(SIGKILL);
                  return 0;
              }),
              128 + SIGKILL);
}

}  // namespace
}  // namespace sandbox::probe
