// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <functional>

#include "../ledger/support.hpp"
#include "supervisor/reconcile.hpp"

// The hands: real processes, cgroups, folders and sockets below a folder of the test's own.
namespace sandbox::supervisor {
namespace {

namespace fs = std::filesystem;
using ledger::Entry;
using ledger::EntryKind;
using ledger::EntryState;
using ledger::Intent;
using ledger::State;
using ledger::test::id;
using ledger::test::open;
using ledger::test::TempDir;

// A child that sleeps until it is killed; killed and reaped at the latest when this goes.
class Sleeper {
public:
    explicit Sleeper(
        const std::function<void()>& first = [] {}, const std::string& program = "/bin/sleep",
        const std::string& argument = "1000")
    {
        int ready[2];
        EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
        pid_ = fork();
        if (pid_ == 0) {
            first();
            execl(program.c_str(), program.c_str(), argument.c_str(), nullptr);
            _exit(127);
        }
        close(ready[1]);
        char byte = 0;
        EXPECT_EQ(read(ready[0], &byte, 1), 0) << "end of file: exec closed the other end";
        close(ready[0]);
    }
    ~Sleeper()
    {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;

    sys::ProcessIdentity identity() const { return VALUE(sys::identity_of(pid_)); }
    bool lives() const
    {
        const auto handle = sys::Pidfd::open(pid_);
        return handle && !handle->ended().value_or(true);
    }
    // Ended, but not reaped: its number cannot be reused yet.
    void end() const
    {
        kill(pid_, SIGKILL);
        siginfo_t info{};
        waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
    }
    pid_t pid() const { return pid_; }

private:
    pid_t pid_ = 0;
};

class Reconcile : public testing::Test {
protected:
    Reconcile() : ledger_(open(dir_))
    {
        fs::create_directories(dir_.file("run"));
        fs::create_directories(dir_.file("sandboxes"));
        run_ = VALUE(sys::open_dir(dir_.file("run")));
        state_ = VALUE(sys::open_dir(dir_.path()));
        context_.run_root = run_.get();
        context_.state_root = state_.get();
        context_.cgroups = VALUE(sys::cgroup::detect());
        context_.cgroup_parent = "/sandbox-test-" + std::to_string(getpid());
        context_.boot_id = VALUE(sys::boot_id());
    }

    ~Reconcile() override
    {
        const auto tree = sys::cgroup::CgroupTree::find(context_.cgroups, context_.cgroup_parent);
        if (tree && !tree->empty()) {
            EXPECT_OK(tree->remove(sys::Deadline::after(Millis(5000))));
        }
    }

    std::string name(EntryKind kind, unsigned number, const std::string& detail = {}) const
    {
        return driver::resource_name(kind, id(number), context_.cgroup_parent, detail);
    }

    void add(unsigned number, State state, const std::optional<sys::ProcessIdentity>& shim)
    {
        auto sandbox = ledger::test::sandbox(number, "n" + std::to_string(number));
        sandbox.state = state;
        sandbox.shim = shim;
        ledger::test::add(ledger_, sandbox);
    }

    // Recorded as intended, and as observed where there is an identity.
    void own(unsigned number, EntryKind kind, const std::string& identity = {},
             const std::string& detail = {})
    {
        auto transaction = VALUE(ledger_.begin());
        const Intent intent{kind, name(kind, number, detail)};
        const auto seq = VALUE(transaction.intend(id(number), {&intent, 1}));
        if (!identity.empty()) {
            EXPECT_OK(transaction.observed(seq, identity));
        }
        EXPECT_OK(transaction.commit());
    }

    void make_folders(unsigned number)
    {
        const auto run = dir_.file("run/" + id(number).str());
        const auto state = dir_.file("sandboxes/" + id(number).str());
        fs::create_directories(run + "/bundle/rootfs");
        fs::create_directories(state + "/logs");
        ledger::test::write_bytes(state + "/plan.json", "{}");
        ledger::test::write_bytes(state + "/logs/current", "line\n");
        ledger::test::write_bytes(run + "/bundle/config.json", "{}");
        for (const auto* socket_name : {"v.sock", "shim.sock", "v.sock_5001"})
            bind_socket(run, socket_name);
    }

    static void bind_socket(const std::string& folder, const std::string& socket_name)
    {
        const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        (folder + "/" + socket_name).copy(address.sun_path, sizeof address.sun_path - 1);
        EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        close(fd);
    }

    bool exists(const std::string& path) const
    {
        return fs::exists(fs::symlink_status(dir_.file(path)));
    }
    ledger::Sandbox get(unsigned number) { return *VALUE(ledger_.find(id(number))); }
    Report run() { return VALUE(reconcile(ledger_, context_)); }

    TempDir dir_;
    ledger::Ledger ledger_;
    sys::UniqueFd run_;
    sys::UniqueFd state_;
    driver::ResourceContext context_;
};

std::string said(const Report& report)
{
    std::string text;
    for (const auto* list : {&report.found, &report.removed, &report.left, &report.now_resting}) {
        for (const auto& line : *list) text += line.what + ": " + line.why + "\n";
        text += "--\n";
    }
    return text;
}

TEST_F(Reconcile, RemovesAllThatADeadSandboxOwnedAndProvesIt)
{
    const Sleeper innocent;
    const Sleeper shim;
    const std::vector<std::string> controllers{"pids"};
    const auto tree = VALUE(sys::cgroup::CgroupTree::create(
        context_.cgroups, name(EntryKind::cgroup_root, 1), controllers));
    const auto workload = VALUE(tree.make_child("workload"));
    const auto session = VALUE(workload.make_child("s1"));
    const auto handles = VALUE(session.join_handles());
    const Sleeper member([&] {
        const auto tasks = handles.task_numbers();
        if (!tasks.empty() && sys::cgroup::join_self(tasks) != 0) _exit(1);
    });
    const bool in_cgroup = !VALUE(session.processes()).empty();
    make_folders(1);
    shim.end();
    add(1, State::running, shim.identity());
    {
        auto transaction = VALUE(ledger_.begin());
        EXPECT_OK(transaction.allocate_ids(id(1), {100000, 4}));
        EXPECT_OK(transaction.commit());
    }
    own(1, EntryKind::state_dir);
    own(1, EntryKind::log_files);
    own(1, EntryKind::run_dir);
    own(1, EntryKind::cgroup_root, driver::encode_identity(tree));
    own(1, EntryKind::cgroup_workload, driver::encode_identity(workload));
    own(1, EntryKind::cgroup_session, {}, "s1");
    own(1, EntryKind::door_socket);
    own(1, EntryKind::shim_socket);
    own(1, EntryKind::pid1_process, ledger::encode(member.identity()));
    own(1, EntryKind::shim_process, ledger::encode(shim.identity()));

    const Report report = run();
    EXPECT_TRUE(report.left.empty()) << said(report);
    EXPECT_EQ(report.removed.size(), 9U) << said(report);
    EXPECT_TRUE(in_cgroup || context_.cgroups.layout == sys::cgroup::Layout::v2);
    EXPECT_FALSE(member.lives());
    EXPECT_TRUE(innocent.lives());
    EXPECT_FALSE(exists("run/" + id(1).str()));
    EXPECT_TRUE(exists("sandboxes/" + id(1).str() + "/plan.json")) << "it can be started again";
    EXPECT_TRUE(VALUE(sys::cgroup::CgroupTree::find(context_.cgroups, tree.path())).empty());
    EXPECT_EQ(get(1).state, State::dead);
    EXPECT_EQ(get(1).exit->reason, ledger::ExitReason::unknown);
    EXPECT_FALSE(get(1).ids.has_value()) << "its ids may be given to another now";
    EXPECT_TRUE(run().clean()) << "reconcile twice is reconcile once";
    EXPECT_TRUE(VALUE(ledger_.claims()).empty());
}

TEST_F(Reconcile, LeavesASandboxWithALivingShimAlone)
{
    const Sleeper shim;
    make_folders(1);
    add(1, State::running, shim.identity());
    own(1, EntryKind::run_dir);
    own(1, EntryKind::shim_process, ledger::encode(shim.identity()));
    EXPECT_TRUE(run().clean());
    EXPECT_TRUE(shim.lives());
    EXPECT_TRUE(exists("run/" + id(1).str() + "/v.sock"));
    EXPECT_EQ(get(1).state, State::running);
}

TEST_F(Reconcile, NeverKillsAProcessThatOnlyHasTheNumber)
{
    const Sleeper innocent;
    auto reused = innocent.identity();
    reused.start_time -= 1;
    reused.pidfd_inode = 0;
    auto other_boot = innocent.identity();
    other_boot.boot_id = "00000000-0000-0000-0000-000000000000";
    add(1, State::running, reused);
    own(1, EntryKind::pid1_process, ledger::encode(reused));
    add(2, State::running, other_boot);
    own(2, EntryKind::shim_process, ledger::encode(other_boot));
    const Report report = run();
    EXPECT_TRUE(report.left.empty()) << said(report);
    EXPECT_EQ(get(1).state, State::dead);
    EXPECT_EQ(get(2).state, State::dead);
    EXPECT_TRUE(innocent.lives());
}

TEST_F(Reconcile, FindsAShimThatWasNeverRecordedByItsName)
{
    // A shell by the name of our program, which reads a script by the name of the sandbox.
    const std::string program = dir_.file("sandbox-shim");
    fs::copy_file("/bin/sh", program);
    const auto first = [&] {
        int endless[2];
        if (chdir(dir_.path().c_str()) != 0 || pipe(endless) != 0 || dup2(endless[0], 0) < 0)
            _exit(1);
    };
    for (const unsigned number : {1U, 2U})
        ledger::test::write_bytes(dir_.file(name(EntryKind::shim_process, number)), "read line\n");
    const Sleeper shim(first, program, name(EntryKind::shim_process, 1));
    const Sleeper other(first, program, name(EntryKind::shim_process, 2));
    // Whoever looks for it, and another program of root's with that argument.
    const Sleeper finder(first, "/bin/sh", name(EntryKind::shim_process, 1));
    add(1, State::prepared, std::nullopt);
    own(1, EntryKind::shim_process);
    const Report report = run();
    EXPECT_TRUE(report.left.empty()) << said(report);
    EXPECT_FALSE(shim.lives());
    EXPECT_TRUE(other.lives());
    EXPECT_TRUE(finder.lives());
}

TEST_F(Reconcile, LeavesAnothersCgroupAloneWithAllThatIsBelowIt)
{
    const std::vector<std::string> controllers{"pids"};
    const std::string root = name(EntryKind::cgroup_root, 1);
    {
        const auto ours = VALUE(
            sys::cgroup::CgroupTree::create(context_.cgroups, root, controllers));
        add(1, State::running, std::nullopt);
        own(1, EntryKind::cgroup_root, driver::encode_identity(ours));
        own(1, EntryKind::cgroup_session, {}, "s1");
        EXPECT_OK(ours.remove(sys::Deadline::after(Millis(5000))));
    }
    // The same names, made by somebody else, with somebody in them.
    const auto theirs = VALUE(sys::cgroup::CgroupTree::create(context_.cgroups, root, controllers));
    const auto workload = VALUE(theirs.make_child("workload"));
    const auto session = VALUE(workload.make_child("s1"));
    const auto handles = VALUE(session.join_handles());
    const Sleeper innocent([&] {
        const auto tasks = handles.task_numbers();
        if (!tasks.empty() && sys::cgroup::join_self(tasks) != 0) _exit(1);
    });
    const Report report = run();
    EXPECT_TRUE(innocent.lives()) << said(report);
    EXPECT_FALSE(VALUE(sys::cgroup::CgroupTree::find(context_.cgroups,
                                                     name(EntryKind::cgroup_session, 1, "s1")))
                     .empty());
    EXPECT_TRUE(run().clean()) << "ours are known to be gone";
}

TEST_F(Reconcile, UnwindsIntentsWhoseEffectsNeverHappened)
{
    add(1, State::prepared, std::nullopt);
    for (const auto kind : {EntryKind::state_dir, EntryKind::run_dir, EntryKind::cgroup_root,
                            EntryKind::cgroup_control, EntryKind::pid1_process,
                            EntryKind::launcher_process, EntryKind::log_worker}) {
        own(1, kind);
    }
    const Report report = run();
    EXPECT_TRUE(report.left.empty()) << said(report);
    EXPECT_EQ(report.removed.size(), 6U) << said(report);
    EXPECT_TRUE(run().clean());
}

TEST_F(Reconcile, GoesOnFromAnyPointWhereAnEarlierOneWasKilled)
{
    const Sleeper shim;
    shim.end();
    for (unsigned number = 1; number <= 3; ++number) {
        make_folders(number);
        add(number, State::running, shim.identity());
        own(number, EntryKind::run_dir);
        own(number, EntryKind::door_socket);
    }
    // Killed after the effects of sandbox 1, and while it held the claim on sandbox 2.
    (void)driver::unwind(VALUE(ledger_.entries(id(1))), context_);
    const pid_t child = fork();
    if (child == 0) {
        auto own_ledger = ledger::Ledger::open(dir_.host(), ledger::OpenMode::read_write);
        auto transaction = own_ledger->begin();
        const bool claimed = transaction
                                 ->claim({"reconcile-x", id(2), "reconcile", "",
                                          *sys::identity_of(getpid()), "unwind",
                                          ledger::test::kFarFuture},
                                         *ledger::now(), [](const auto&) { return true; })
                                 .has_value() &&
                             transaction->commit().has_value();
        _exit(claimed ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_EQ(status, 0);
    const Report report = run();
    EXPECT_TRUE(report.left.empty()) << said(report);
    for (unsigned number = 1; number <= 3; ++number) {
        EXPECT_EQ(get(number).state, State::dead);
        EXPECT_FALSE(exists("run/" + id(number).str()));
    }
    EXPECT_TRUE(run().clean());
}

TEST_F(Reconcile, LeavesWhatAnotherLivingProcessIsActingOn)
{
    const Sleeper holder;
    add(1, State::prepared, std::nullopt);
    own(1, EntryKind::run_dir);
    make_folders(1);
    {
        auto transaction = VALUE(ledger_.begin());
        EXPECT_OK(transaction.claim(
            {"op", id(1), "run", "d", holder.identity(), "launch", ledger::test::kFarFuture},
            *ledger::now(), [](const auto&) { return true; }));
        EXPECT_OK(transaction.commit());
    }
    EXPECT_EQ(run().left.size(), 1U);
    EXPECT_TRUE(exists("run/" + id(1).str()));
    EXPECT_EQ(get(1).state, State::prepared);
    holder.end();
    EXPECT_TRUE(run().left.empty());
    EXPECT_FALSE(exists("run/" + id(1).str()));
    EXPECT_EQ(get(1).state, State::dead);
}

TEST_F(Reconcile, KeepsTheLogsOfOneThatIsRemovedWithItsWorkload)
{
    const Sleeper shim;
    shim.end();
    auto sandbox = ledger::test::sandbox(1, "gone");
    sandbox.state = State::running;
    sandbox.shim = shim.identity();
    sandbox.remove_on_exit = ledger::RemoveOnExit::yes;
    ledger::test::add(ledger_, sandbox);
    make_folders(1);
    own(1, EntryKind::state_dir);
    own(1, EntryKind::log_files);
    own(1, EntryKind::run_dir);
    const Report report = run();
    EXPECT_TRUE(report.left.empty()) << said(report);
    EXPECT_EQ(get(1).state, State::deleted);
    EXPECT_TRUE(exists("sandboxes/" + id(1).str() + "/logs/current"));
    EXPECT_FALSE(exists("sandboxes/" + id(1).str() + "/plan.json"));
    EXPECT_TRUE(run().clean());
}

TEST_F(Reconcile, RemovesOrphanFoldersAndOnlyReportsWhatMayBeAnothers)
{
    add(1, State::stopped, std::nullopt);
    own(1, EntryKind::state_dir);
    make_folders(8);
    fs::create_directories(dir_.file("run/not-an-id"));
    const auto lone = VALUE(sys::cgroup::CgroupTree::create(
        context_.cgroups, name(EntryKind::cgroup_root, 9), std::vector<std::string>{"pids"}));
    const Report report = run();
    EXPECT_FALSE(exists("run/" + id(8).str()));
    EXPECT_FALSE(exists("sandboxes/" + id(8).str()));
    EXPECT_TRUE(exists("run/not-an-id"));
    EXPECT_EQ(report.removed.size(), 2U) << said(report);
    EXPECT_EQ(report.left.size(), 1U) << said(report);
    EXPECT_FALSE(VALUE(sys::cgroup::CgroupTree::find(context_.cgroups, lone.path())).empty());
}

TEST_F(Reconcile, TouchesNothingOnTheWordOfADamagedLedger)
{
    const Sleeper shim;
    shim.end();
    make_folders(1);
    add(1, State::running, shim.identity());
    own(1, EntryKind::run_dir);
    EXPECT_OK(ledger_.compact());
    auto bytes = ledger::test::read_bytes(dir_.file("ledger.db"));
    const auto at = bytes.find("sandboxes/" + id(1).str() + "/plan.json");
    ASSERT_NE(at, std::string::npos);
    bytes[at] = 'S';
    ledger::test::write_bytes(dir_.file("ledger.db"), bytes);
    auto damaged = open(dir_, ledger::OpenMode::read_write);
    EXPECT_CODE(reconcile(damaged, context_), Code::corrupt);
    EXPECT_TRUE(exists("run/" + id(1).str()));
}

TEST_F(Reconcile, OfAThousandCleanSandboxesIsQuick)
{
    const auto shim = ledger::test::self();
    auto transaction = VALUE(ledger_.begin());
    std::vector<Intent> intents;
    for (unsigned number = 1; number <= 1000; ++number) {
        auto sandbox = ledger::test::sandbox(number, "n" + std::to_string(number));
        sandbox.state = State::running;
        sandbox.shim = shim;
        EXPECT_OK(transaction.insert(sandbox));
        intents.clear();
        for (const auto kind : {EntryKind::state_dir, EntryKind::run_dir, EntryKind::cgroup_root,
                                EntryKind::cgroup_control, EntryKind::cgroup_workload,
                                EntryKind::pid1_process, EntryKind::shim_process}) {
            intents.push_back({kind, name(kind, number)});
        }
        EXPECT_OK(transaction.intend(id(number), intents));
        fs::create_directory(dir_.file("run/" + id(number).str()));
    }
    EXPECT_OK(transaction.commit());
    // Time of this process: what others do on the machine is not in it.
    const auto now = [] {
        timespec time{};
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
    };
    const double start = now();
    const Report report = run();
    const double took = now() - start;
    std::printf("reconcile of 1000 clean sandboxes: %.1f ms\n", took);
    EXPECT_TRUE(report.clean()) << said(report);
    EXPECT_EQ(report.sandboxes, 1000U);
    EXPECT_LT(took, 1000.0);
}

}  // namespace
}  // namespace sandbox::supervisor
