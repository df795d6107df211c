// SPDX-License-Identifier: Apache-2.0
#include "confine/box.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <sstream>

#include "../sys/child.hpp"
#include "sys/mount.hpp"
#include "sys/seccomp/compile.hpp"

namespace sandbox::confine {

namespace {

using Words = std::map<std::string, std::string>;

constexpr std::chrono::milliseconds kPatience{20'000};
constexpr std::uint32_t kBase = 0x30000000;  // outer ids that nobody has

BoxSpec plain_box()
{
    BoxSpec spec;
    spec.uids = {{0, kBase, 65536}};
    spec.gids = spec.uids;
    spec.owner = kBase;
    spec.hostname = "boxed";
    spec.shm_size = 1U << 20;
    spec.masked = {"/proc/keys", "/proc/no-such-thing"};
    spec.read_only = {"/proc/sys"};
    spec.capabilities = 1U << 5;  // CAP_KILL
    spec.filter = sys::seccomp::compile(sys::seccomp::Profile::outer, *sys::seccomp::native_arch());
    return spec;
}

// A root with the two folders that a box needs and one of its own.
Status build_plain()
{
    const sys::UniqueFd tree = TRY(sys::make_tmpfs(1U << 20, 0755, {}));
    for (const char* name : {"dev", "own", "proc"}) TRY_VOID(sys::mkdir_at(tree.get(), name, 0755));
    return sys::attach_tree(tree.get(), AT_FDCWD, "/tmp");
}

Words parse(const std::string& text)
{
    Words words;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const auto at = line.find('=');
        if (at != std::string::npos) words[line.substr(0, at)] = line.substr(at + 1);
    }
    return words;
}

std::string drained(int pipe)
{
    std::string text;
    char bytes[4096];
    for (ssize_t got = 0; (got = ::read(pipe, bytes, sizeof bytes)) > 0;)
        text.append(bytes, static_cast<std::size_t>(got));
    return text;
}

struct BoxOutcome {
    std::string error;  // of start() or finish()
    std::string said;   // on descriptors 1 and 2
    int status = -1;
};

BoxOutcome run_box(const BoxSpec& spec, const std::function<Status()>& build = build_plain)
{
    BoxOutcome outcome;
    auto out = sys::make_pipe();
    const auto null = sys::open_file("/dev/null", O_RDONLY);
    const auto program = sys::open_file(BOX_WITNESS, O_RDONLY);
    BoxOrder order;
    order.descriptors = {null->get(), out->write.get(), out->write.get()};
    order.diagnostics = out->write.get();
    order.program = program->get();
    order.build = build;
    order.root = "/tmp";
    const auto deadline = sys::Deadline::after(kPatience);
    auto box = Box::start(spec, order, deadline);
    out->write.reset();
    if (!box) {
        outcome.error = box.error().message();
        return outcome;
    }
    const auto process = std::move(*box).finish(deadline);
    outcome.said = drained(out->read.get());
    if (!process) {
        outcome.error = process.error().message();
        return outcome;
    }
    const auto ended = process->wait_exit(deadline);
    if (ended && *ended) outcome.status = (*ended)->signal != 0 ? -1 : (*ended)->code;
    return outcome;
}

class ConfineBox : public ::testing::Test {
protected:
    void SetUp() override
    {
        if (!testing::is_root()) GTEST_SKIP() << "making id maps needs root";
    }
    void TearDown() override
    {
        EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
    }
};

}  // namespace

TEST_F(ConfineBox, ShowsItsFirstProcessAWorldOfItsOwn)
{
    const BoxOutcome outcome = run_box(plain_box());
    ASSERT_EQ(outcome.error, "") << outcome.said;
    EXPECT_EQ(outcome.status, 0);
    const Words seen = parse(outcome.said);
    const Words wanted{{"descriptors", "0,1,2"},
                       {"pid", "1"},
                       {"uid", "0:0"},
                       {"groups", "0"},
                       {"hostname", "boxed"},
                       {"root", "dev,own,proc"},
                       {"dev", "fd,full,mqueue,null,ptmx,pts,random,shm,stderr,stdin,stdout,tty,"
                               "urandom,zero"},
                       {"environment", "empty"},
                       {"cwd", "/"},
                       {"loopback", "up"},
                       {"keys", "0"},
                       {"no_new_privs", "1"},
                       {"null", "done"},
                       {"sysctl", "Permission denied"},
                       {"mount", "Operation not permitted"},
                       {"mknod", "Operation not permitted"},
                       {"sethostname", "Operation not permitted"},
                       {"chroot", "Operation not permitted"}};
    EXPECT_EQ(seen, wanted);
}

// What is refused above is refused by the box, not by this machine.
TEST_F(ConfineBox, RefusesOnlyWhatAnUnconfinedRootMayDo)
{
    auto out = sys::make_pipe();
    const pid_t child = ::fork();
    if (child == 0) {
        // Its own mounts, hostname and pids: the attempts succeed and nobody else sees them.
        if (::unshare(CLONE_NEWNS | CLONE_NEWUTS) != 0 || !sys::make_all_private()) ::_exit(9);
        ::dup2(out->write.get(), 1);
        ::execl(BOX_WITNESS, BOX_WITNESS, nullptr);
        ::_exit(9);
    }
    out->write.reset();
    const Words seen = parse(drained(out->read.get()));
    int status = 0;
    ::waitpid(child, &status, 0);
    for (const char* attempt : {"sysctl", "mount", "mknod", "sethostname", "chroot"})
        EXPECT_EQ(seen.at(attempt), "done") << attempt;
    EXPECT_NE(seen.at("keys"), "0");
    EXPECT_NE(seen.at("pid"), "1");
}

// Each control alone: without the one under test the attempt would be let through.
TEST_F(ConfineBox, HoldsMountsOutByItsNamespacesAloneToo)
{
    BoxSpec spec = plain_box();
    spec.filter.clear();
    spec.capabilities = ~sys::CapSet{0} >> 23;  // all that this kernel may know
    const Words seen = parse(run_box(spec).said);
    EXPECT_EQ(seen.at("mount"), "Operation not permitted");
    EXPECT_EQ(seen.at("sethostname"), "Operation not permitted");
    EXPECT_EQ(seen.at("mknod"), "Operation not permitted");
    // A capability that reaches no further than the box itself.
    EXPECT_EQ(seen.at("chroot"), "done");
}

// The host's own root, with all it may do: covers and read-only mounts hold by themselves.
TEST_F(ConfineBox, CoversKernelPathsForEveryUser)
{
    BoxSpec spec = plain_box();
    spec.own.user = false;
    spec.owner = 0;
    spec.filter.clear();
    spec.capabilities = sys::get_caps()->permitted;
    const Words seen = parse(run_box(spec).said);
    EXPECT_EQ(seen.at("sysctl"), "Read-only file system");
    EXPECT_EQ(seen.at("keys"), "0");
    EXPECT_EQ(seen.at("mount"), "done") << "the control: this root is not held by its namespaces";
}

TEST_F(ConfineBox, SharesTheCallersNetworkOnlyWhenTold)
{
    BoxSpec spec = plain_box();
    spec.own.net = false;
    const BoxOutcome outcome = run_box(spec);
    ASSERT_EQ(outcome.error, "") << outcome.said;
    EXPECT_EQ(outcome.status, 0);
}

TEST_F(ConfineBox, SaysInWordsWhatFailedInside)
{
    const BoxOutcome outcome = run_box(
        plain_box(), [] { return Status(fail(Code::not_found, "there is no tree today")); });
    EXPECT_NE(outcome.error.find("first process failed"), std::string::npos) << outcome.error;
    EXPECT_NE(outcome.said.find("there is no tree today"), std::string::npos) << outcome.said;
    EXPECT_EQ(outcome.status, -1);
}

TEST_F(ConfineBox, NeverRunsTheProgramWithoutItsIdMap)
{
    BoxSpec spec = plain_box();
    spec.uids = {{0, kBase, 0}};  // the kernel refuses an empty range
    const BoxOutcome outcome = run_box(spec);
    EXPECT_NE(outcome.error.find("id maps"), std::string::npos) << outcome.error;
    EXPECT_EQ(outcome.said.find("pid="), std::string::npos) << outcome.said;
}

TEST_F(ConfineBox, EndsItsChildWhenItIsDropped)
{
    const auto program = sys::open_file(BOX_WITNESS, O_RDONLY);
    const auto null = sys::open_file("/dev/null", O_RDWR);
    BoxOrder order;
    order.descriptors = {null->get(), null->get(), null->get()};
    order.program = program->get();
    order.build = build_plain;
    order.root = "/tmp";
    int pid = 0;
    {
        const auto box = Box::start(plain_box(), order, sys::Deadline::after(kPatience));
        ASSERT_TRUE(box) << box.error().message();
        pid = box->process().pid();
        EXPECT_EQ(::kill(pid, 0), 0);
    }
    EXPECT_EQ(::kill(pid, 0), -1);
    EXPECT_EQ(errno, ESRCH);
}

TEST_F(ConfineBox, LeavesNoMountBehind)
{
    const auto before = sys::ProcDir::self()->mountinfo()->size();
    EXPECT_EQ(run_box(plain_box()).status, 0);
    EXPECT_EQ(sys::ProcDir::self()->mountinfo()->size(), before);
}

}  // namespace sandbox::confine
