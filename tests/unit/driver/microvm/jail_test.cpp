// SPDX-License-Identifier: Apache-2.0
#include "driver/microvm/jail.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <optional>

#include "sys/file.hpp"
#include "sys/landlock.hpp"
#include "sys/seccomp/compile.hpp"

namespace sandbox::driver::microvm {
namespace {

// Ids of a range that no sandbox on this host is given by default.
constexpr std::uint32_t kIdBase = 1'900'000'000;
constexpr std::uint32_t kProgramUid = 65533;
constexpr std::uint32_t kKeeperUid = 65532;

sys::Deadline soon() { return sys::Deadline::after(Millis{20'000}); }

// A jail around the stand-in, with a pipe for its output.
class Standin {
public:
    explicit Standin(std::string what) : what_(std::move(what)) {}

    JailSpec spec()
    {
        JailSpec spec;
        spec.name = "stand-in";
        spec.label = "launcher:test";
        program_ = sys::open_file(SANDBOX_STANDIN, O_RDONLY).value();
        spec.binds = libraries_of(program_.get()).value();
        spec.binds.push_back(
            {sys::duplicate(program_.get()).value(), "/program", JailUse::execute});
        spec.binds.push_back({sys::open_file("/etc/hostname", O_PATH).value(), "/given"});
        spec.program = "/program";
        spec.argv = {"stand-in", what_};
        spec.ids = {{kKeeperUid, kIdBase + kKeeperUid, 2}};
        spec.uid = kProgramUid;
        spec.keeper_uid = kKeeperUid;
        spec.rlimits = {{RLIMIT_CORE, 0, 0}};
        null_ = sys::open_file("/dev/null", O_RDWR).value();
        spec.descriptors = {null_.get(), output_.write.get(), null_.get()};
        return spec;
    }

    Result<Jailed> start() { return start_jail(spec(), soon()); }

    // Until the stand-in said that it is at its end.
    std::map<std::string, std::string> findings()
    {
        output_.write.reset();
        std::string text;
        char chunk[4096];
        while (!text.ends_with("end reached\n")) {
            const ssize_t got = ::read(output_.read.get(), chunk, sizeof chunk);
            if (got <= 0) break;
            text.append(chunk, static_cast<std::size_t>(got));
        }
        std::map<std::string, std::string> found;
        for (std::size_t at = 0; at < text.size();) {
            const auto end = text.find('\n', at);
            const auto space = text.find(' ', at);
            found[text.substr(at, space - at)] = text.substr(space + 1, end - space - 1);
            at = end + 1;
        }
        return found;
    }

private:
    std::string what_;
    sys::UniqueFd program_;
    sys::UniqueFd null_;
    sys::Pipe output_ = sys::make_pipe().value();
};

class Jail : public testing::Test {
protected:
    void SetUp() override
    {
        if (::geteuid() != 0)
            GTEST_SKIP() << "making jails needs root, and this is uid " << ::geteuid();
    }
};

TEST_F(Jail, LeavesALostProgramNothingOfTheHost)
{
    Standin standin("probe");
    auto jail = standin.start();
    ASSERT_TRUE(jail) << jail.error().message();
    const auto found = standin.findings();
    const std::map<std::string, std::string> expected{
        {"uid", std::to_string(kProgramUid)},
        {"gid", std::to_string(kProgramUid)},
        {"groups", "0"},
        {"pid", "2"},
        {"parent", "1"},
        {"capabilities", "0"},
        {"bounding", "none"},
        {"no_new_privs", "1"},
        {"seccomp", "2"},
        {"core", "0"},
        {"descriptors", "0,1,2,"},
        {"environment", "empty"},
        {"given", "ok"},
        {"fork", "EPERM"},
        {"thread", "ok"},
        {"inet", "EPERM"},
        {"unix", "EPERM"},
        {"vsock", "EPERM"},
        {"unshare", "EPERM"},
        {"mount", "EPERM"},
        {"chroot", "EPERM"},
        {"setuid", "EINVAL"},  // 0 is no id of its user namespace
        {"ptrace", "EPERM"},
        {"keyctl", "EPERM"},
        {"bpf", "EPERM"},
        {"io_uring", "EPERM"},
        {"end", "reached"},
    };
    for (const auto& [name, value] : expected) {
        ASSERT_TRUE(found.contains(name)) << name;
        EXPECT_EQ(found.at(name), value) << name;
    }
    // Landlock answers before the file system does where the kernel has it.
    for (const char* name : {"passwd", "proc", "sys", "root", "up", "create", "given-write"})
        EXPECT_NE(found.at(name), "ok") << name;
    EXPECT_NE(found.at("kill"), "ok");
    EXPECT_NE(found.at("setgroups"), "ok");
    EXPECT_TRUE(jail->keeper.wait_exit(soon()).value());
}

TEST_F(Jail, EndsItsProgramWhenTheLifelineCloses)
{
    Standin standin("stay");
    auto jail = standin.start();
    ASSERT_TRUE(jail) << jail.error().message();
    EXPECT_EQ(standin.findings()["end"], "reached");
    EXPECT_FALSE(jail->program.ended().value());
    jail->lifeline.reset();
    EXPECT_TRUE(jail->program.wait_ended(soon()).value());
    EXPECT_TRUE(jail->keeper.wait_exit(soon()).value());
}

TEST_F(Jail, EndsItsProgramWhenTheOwnerIsKilled)
{
    sys::Pipe told = sys::make_pipe().value();
    const pid_t owner = ::fork();
    ASSERT_GE(owner, 0);
    if (owner == 0) {
        Standin standin("stay");
        auto jail = standin.start();
        const pid_t program = jail ? jail->program.pid() : -1;
        if (::write(told.write.get(), &program, sizeof program) < 0) ::_exit(1);
        while (true) ::pause();
    }
    pid_t program = -1;
    ASSERT_EQ(::read(told.read.get(), &program, sizeof program),
              static_cast<ssize_t>(sizeof program));
    const auto handle = sys::Pidfd::open(program);
    ASSERT_EQ(::kill(owner, SIGKILL), 0);
    EXPECT_EQ(::waitpid(owner, nullptr, 0), owner);
    ASSERT_TRUE(handle) << handle.error().message();
    EXPECT_TRUE(handle->wait_ended(soon()).value());
}

TEST_F(Jail, EndsItsProgramWhenItsFirstProcessIsKilled)
{
    Standin standin("stay");
    auto jail = standin.start();
    ASSERT_TRUE(jail) << jail.error().message();
    ASSERT_TRUE(jail->keeper.send_signal(SIGKILL));
    EXPECT_TRUE(jail->program.wait_ended(soon()).value());
    EXPECT_TRUE(jail->keeper.wait_exit(soon()).value());
}

TEST_F(Jail, PassesOnTheStatusOfItsProgram)
{
    for (const auto& [what, status] : {std::pair("exit", 7), std::pair("crash", 128 + SIGKILL)}) {
        Standin standin(what);
        auto jail = standin.start();
        ASSERT_TRUE(jail) << jail.error().message();
        const auto ended = jail->keeper.wait_exit(soon()).value();
        ASSERT_TRUE(ended);
        EXPECT_EQ(ended->code, status) << what;
    }
}

TEST_F(Jail, SaysWhatFailedAndLeavesNothing)
{
    Standin standin("probe");
    JailSpec spec = standin.spec();
    spec.program = "/absent";
    const auto jail = start_jail(std::move(spec), soon());
    ASSERT_FALSE(jail);
    EXPECT_NE(jail.error().message().find("/absent"), std::string::npos) << jail.error().message();
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
}

TEST_F(Jail, CarriesItsLabelWhereTheOwnersArgumentsWere)
{
    Standin standin("stay");
    auto jail = standin.start();
    ASSERT_TRUE(jail) << jail.error().message();
    const auto proc = sys::ProcDir::open(jail->keeper.pid());
    ASSERT_TRUE(proc);
    // As much of it as the owner's own arguments have room for.
    const std::string arguments = proc->text("cmdline").value().c_str();
    EXPECT_FALSE(arguments.empty());
    EXPECT_TRUE(std::string("launcher:test").starts_with(arguments)) << arguments;
    // Another user than the program, and nobody to look at it: not even the same user could.
    EXPECT_EQ(proc->status().value().uid[0], kIdBase + kKeeperUid);
    EXPECT_EQ(proc->status().value().seccomp, 0);
    EXPECT_TRUE(end_jail(*jail, soon()));
}

TEST_F(Jail, HasNamespacesOfItsOwn)
{
    Standin standin("stay");
    auto jail = standin.start();
    ASSERT_TRUE(jail) << jail.error().message();
    const auto program = sys::ProcDir::open(jail->program.pid()).value();
    const auto self = sys::ProcDir::self().value();
    for (const char* name : {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"})
        EXPECT_NE(program.namespace_inode(name).value(), self.namespace_inode(name).value())
            << name;
    // Its tree is one tmpfs and the files it was given, all of them read-only.
    const auto mounts = program.mountinfo().value();
    EXPECT_GT(mounts.size(), 2U);
    for (const sys::MountInfo& mount : mounts) EXPECT_TRUE(mount.has("ro")) << mount.target;
    EXPECT_TRUE(end_jail(*jail, soon()));
}

TEST(JailSpec, RefusesAPlaceThatIsNotBelowItsRoot)
{
    for (const char* path : {"", "/", "program", "/a/../../b"}) {
        JailSpec spec;
        spec.argv = {"x"};
        spec.descriptors = {0};
        spec.binds.push_back({sys::UniqueFd(), path});
        const auto jail = start_jail(std::move(spec), soon());
        ASSERT_FALSE(jail) << path;
        EXPECT_EQ(jail.error().code(), Code::invalid_argument) << path;
    }
}

TEST(JailRules, AllowThreadsAndNoProcessesOrSockets)
{
    using sys::seccomp::Answer;
    const auto rules = jail_rules();
    const auto arch = sys::seccomp::native_arch().value();
    const auto answer = [&](const char* name, std::uint64_t first) {
        const auto number = sys::seccomp::syscall_number(name, arch);
        return sys::seccomp::answer(rules, arch, sys::seccomp::audit_arch(arch), number.value(),
                                    std::array<std::uint64_t, 6>{first});
    };
    EXPECT_EQ(answer("clone", CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD),
              Answer::allow);
    EXPECT_EQ(answer("clone", SIGCHLD), Answer::eperm);
    EXPECT_EQ(answer("clone", CLONE_VM | CLONE_VFORK | SIGCHLD), Answer::eperm);
    EXPECT_EQ(answer("clone3", 0), Answer::enosys);
    for (const char* name : {"socket", "bind", "connect", "unshare", "mount", "ptrace"})
        EXPECT_EQ(answer(name, 1), Answer::eperm) << name;
    for (const char* name : {"recvmsg", "sendmsg", "ppoll", "mmap", "memfd_create", "seccomp"})
        EXPECT_EQ(answer(name, 1), Answer::allow) << name;
    EXPECT_TRUE(std::ranges::is_sorted(rules, {}, &sys::seccomp::Rule::syscall));
}

}  // namespace
}  // namespace sandbox::driver::microvm
